"""Events and JSON that only MySQL has: GTIDs, compressed transactions, binary JSON and partial JSON updates."""
