"""All that stands between these servers, this machine and a replica: questions, judgements, words."""
