# Writes vectors.txt: a frame for each opcode and IP version, whose ICRC scapy's contrib.roce computes.
# Extension headers are packed here, by the InfiniBand specification 9.3, because scapy has only some.
import struct
from scapy.all import Ether, IP, IPv6, UDP, Dot1Q, Raw, raw
from scapy.contrib.roce import BTH, cnp

RETH = struct.pack("!QII", 0x1122334455667788, 0xA1B2C3D4, 5000)
AETH = struct.pack("!I", 0x1F000007)
ATOMIC = struct.pack("!QIQQ", 0x1122334455667788, 0xA1B2C3D4, 0x0102030405060708, 0x1112131415161718)
ATOMACK = struct.pack("!Q", 0x2122232425262728)
DETH = struct.pack("!II", 0x80010000, 0x000ABCDE)
IMM = struct.pack("!I", 0xCAFEF00D)
IETH = struct.pack("!I", 0x0DDBA11)

EXT = {
    0x00: b"", 0x01: b"", 0x02: b"", 0x03: IMM, 0x04: b"", 0x05: IMM,
    0x06: RETH, 0x07: b"", 0x08: b"", 0x09: IMM, 0x0A: RETH, 0x0B: RETH + IMM,
    0x0C: RETH, 0x0D: AETH, 0x0E: b"", 0x0F: AETH, 0x10: AETH, 0x11: AETH, 0x12: AETH + ATOMACK,
    0x13: ATOMIC, 0x14: ATOMIC, 0x16: IETH, 0x17: IETH,
}
BARE = {0x0C, 0x11, 0x12, 0x13, 0x14}


def data(n):
    return bytes((i * 7 + n) & 0xFF for i in range(n))


def frames():
    ops = [(o, EXT[o]) for o in EXT]
    ops += [(0x20 | o, EXT[o]) for o in range(0x0C)]
    ops += [(0x64, DETH), (0x65, DETH + IMM)]
    for i, (op, ext) in enumerate(ops):
        n = 0 if op & 0x1F in BARE else [0, 1, 2, 3, 4, 64, 255, 1024][i % 8]
        pad = -n & 3
        yield op, BTH(opcode=op, solicited=i & 1, migreq=i >> 1 & 1, padcount=pad, dqpn=0x123456 ^ i, ackreq=i >> 2 & 1,
                      psn=0xFFFFFF - i) / Raw(ext + data(n) + bytes(pad))
    yield 0x81, cnp(0x10203)


eth = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")
for i, (op, p) in enumerate(frames()):
    u = UDP(sport=49152 + i, dport=4791, chksum=0)
    v4 = eth / IP(src="198.18.0.1", dst="198.18.0.2", id=i, flags="DF", ttl=64 - i % 3, tos=2 | i << 2 & 0xFC) / u / p
    v6 = eth / Dot1Q(vlan=7) / IPv6(src="2001:db8::1", dst="2001:db8::2", hlim=64 - i % 3, tc=1 | i << 2 & 0xFC) / u / p
    for name, f in (("v4", v4), ("v6", v6)):
        print("%s %02x %s" % (name, op, raw(f).hex()))
