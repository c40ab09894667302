"""Drives ls-qpack by lines on stdin, each answered by a line; bytes in hex, fields as name=value pairs.

  settings CAP BLOCKED       encoder: apply the peer's settings     -> encoder stream
  encode STREAM FIELDS       encoder: encode                        -> encoder stream, section
  acks BYTES                 encoder: feed the decoder stream       -> ok
  decoder CAP BLOCKED        new decoder                            -> ok
  instr BYTES                decoder: feed the encoder stream       -> for unblocked streams STREAM:ACKS:FIELDS
  decode STREAM SECTION      decoder: decode                        -> ACKS FIELDS, or blocked
"""
import sys
import pylsqpack

enc, dec = pylsqpack.Encoder(), None


def text(fields):
    return ",".join(n.hex() + "=" + v.hex() for n, v in fields)


def parse(s):
    return [tuple(bytes.fromhex(x) for x in f.split("=")) for f in s.split(",")]


for line in sys.stdin:
    op, *args = line.rstrip("\n").split(" ")
    try:
        if op == "settings":
            out = enc.apply_settings(int(args[0]), int(args[1])).hex()
        elif op == "encode":
            stream, section = enc.encode(int(args[0]), parse(args[1]))
            out = stream.hex() + " " + section.hex()
        elif op == "acks":
            enc.feed_decoder(bytes.fromhex(args[0]))
            out = "ok"
        elif op == "decoder":
            dec = pylsqpack.Decoder(int(args[0]), int(args[1]))
            out = "ok"
        elif op == "instr":
            out = " ".join("%d:%s:%s" % (s, a.hex(), text(f)) for s in dec.feed_encoder(bytes.fromhex(args[0])) for a, f in [dec.resume_header(s)])
        elif op == "decode":
            try:
                acks, fields = dec.feed_header(int(args[0]), bytes.fromhex(args[1]))
                out = acks.hex() + " " + text(fields)
            except pylsqpack.StreamBlocked:
                out = "blocked"
    except Exception as e:
        out = "error %r" % e
    print(out, flush=True)
