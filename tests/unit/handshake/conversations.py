"""Logins as real servers held them: MariaDB 11.8 with TLS, and MySQL 9.7 for caching_sha2_password.

The password is `pässword` each time; `sent` and `received` are payloads in turn, beginning with the first answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from replica.handshake.login.connection import Authenticated, Conversation

PASSWORD: Final = "pässword".encode()
CERTIFICATE_SHA256: Final = bytes.fromhex("beac5dbb4b36b1f14528edbc9143973cdbea3c22dab99f4a7eae063cf8f4b0b1")
"""Of the certificate that the MariaDB server showed."""


@dataclass(frozen=True)
class Recorded:
    """None in `sent` is where the client had nothing to say."""

    plugin: str
    greeted_with: str
    scramble: bytes
    sent: tuple[bytes | None, ...]
    received: tuple[bytes, ...]


def _recorded(plugin: str, greeted_with: str, scramble: str, sent: str, received: str) -> Recorded:
    said = tuple(None if one == "-" else bytes.fromhex(one.removeprefix("empty")) for one in sent.split())
    return Recorded(
        plugin, greeted_with, bytes.fromhex(scramble), said, tuple(bytes.fromhex(one) for one in received.split())
    )


def replay(conversation: Conversation, received: tuple[bytes, ...]) -> tuple[list[bytes | None], Authenticated]:
    """What the client says to the recorded server, and what it makes of the end."""
    said = [next(conversation)]
    try:
        for payload in received:
            said.append(conversation.send(payload))  # noqa: PERF401  (the last one ends it)
    except StopIteration as done:
        return said, done.value
    raise AssertionError("the recorded server came to an end, the client did not")


NATIVE = _recorded(
    "mysql_native_password",
    "mysql_native_password",
    "32495758384b53402433736c4245702a7a4d502b",
    "106434554b35f62fcb8a0904dacd84a31ea43106",
    "00000002000000410136324136394536443945313839434334344139344537304645444137463437393836363931304438313646394337304446"
    "383945434142464244304338463339",
)
ED25519 = _recorded(
    "client_ed25519",
    "mysql_native_password",
    "5a307b3e604c3c284e355b4d502b226761347a2f",
    "aab47fea241b2c71041c4fc1b33edf8391b0fac3 "
    "e92cedee2c99be4613757ae0e5f046a629eca515bd3303e48078b7b962d75a17309ba77441e52363af500f0ed61249fcdc4800b02d04c739869"
    "977a30046ef0d",
    "fe636c69656e745f65643235353139007accef84d89d2ad9e69890af08d711bfeee8d68a9bb439e3affd84d35225364c "
    "00000002000000410142373445433834334439463936413542364432444633414235374445464537454434384633443045413646413045393842"
    "343443333732333342453936464439",
)
PARSEC = _recorded(
    "parsec",
    "mysql_native_password",
    "3e7c765b452837787c243b3d614f495f25357925",
    "3da01937fff5750905a10d1b3e0e836393bbfa74 empty "
    "0a7d660efc40851e55e4901c06a94c6a5e532496f7e3fa67f94391163c925366e6adfc14f7d76b3f5d573af5f14925f4cacfb4178f79aad46b3"
    "754f628cf94ae14d68c0e7b42c1d80ad6f8fdd463c2bba7ec6255ca86c9f985f2845bb3d48d09",
    "fe70617273656300447c081be91b969488e710ed0b61a85ea458e038e0ba2128fa849363716530b9 "
    "015000d208db69fcdd9e515d0254c0009467c1abf7 "
    "00000002000000410145464641463342373143343645413945453443433039353533444642394139354138363036363845314136353743384446"
    "333541364334383441393742463842",
)
CACHING_SHA2 = _recorded(
    "caching_sha2_password",
    "caching_sha2_password",
    "3e49544112707520161d54174f796250410f620f",
    "8c1ad5048d4baa8028f37c4616943b0d34f5eb835d63f5569b69c61822d740d9 70c3a47373776f726400",
    "0104 00000002000000",
)
REMEMBERED = _recorded(
    "caching_sha2_password",
    "caching_sha2_password",
    "36697f526c5405087a0106720c361c5667383618",
    "8e221018c7084f92bcf4bc14eed482808293a30c62c352ea9b32ae7eac651c0d -",
    "0103 00000002000000",
)
MARIADB: Final = (NATIVE, ED25519, PARSEC)
ALL: Final = (*MARIADB, CACHING_SHA2, REMEMBERED)
