// Package wscases has test cases for implementations of WebSocket: what a peer sends, byte for byte, and
// what an implementation that echoes messages must answer. They are ordered by the sections of RFC 6455
// and RFC 7692. The package has its own encoding of frames and its own decompressor, and shares
// nothing with package websocket.
package wscases

import (
	"fmt"
	"slices"
	"strings"
)

// Case is one exchange.
type Case struct {
	Section string // of the RFC
	Name    string
	send    []frame
	chop    int     // bytes of each write, 0 for all at once
	want    []frame // messages and pongs, in order
	// closes has the codes one of which the implementation must close with; nil if it must stay open until
	// the case closes with 1000. 1005 is a Close frame without a code.
	closes  []int
	Deflate *Parameters // the case compresses; nil for cases without
}

// Parameters are those of permessage-deflate that a case negotiates.
type Parameters struct {
	Offer                              string // of a client
	Response                           string // of a server
	ServerNoTakeover, ClientNoTakeover bool
	ServerBits, ClientBits             int
}

// Cases returns all cases.
func Cases() []Case {
	return slices.Concat(framing(), pings(), reserved(), fragments(), utf8Cases(), closing(), volume(), masking(), deflate())
}

var (
	protocolError = []int{1002}
	invalid       = []int{1007}
)

func message(op byte, p string) frame { return frame{op: op, payload: p} }

// framing is RFC 6455 5.2: payload lengths, encodings of lengths, cuts of the stream.
func framing() (cs []Case) {
	for _, op := range []byte{text, bin} {
		for _, n := range []int{0, 1, 125, 126, 127, 128, 65535, 65536} {
			m := message(op, strings.Repeat("*", n))
			for _, chop := range []int{0, 1, 997} {
				if chop == 1 && n > 200 {
					continue
				}
				cs = append(cs, Case{Section: "6455 5.2", Name: fmt.Sprintf("opcode %d, %d bytes, writes of %d", op, n, chop), send: []frame{m}, chop: chop, want: []frame{m}})
			}
		}
	}
	for name, f := range map[string]frame{
		"5 bytes in 16 bits":     {op: text, payload: "Hello", length: by16},
		"125 bytes in 16 bits":   {op: text, payload: strings.Repeat("*", 125), length: by16},
		"5 bytes in 64 bits":     {op: text, payload: "Hello", length: by64},
		"65535 bytes in 64 bits": {op: bin, payload: strings.Repeat("*", 65535), length: by64},
		"top bit of 64 set":      {op: bin, payload: "Hello", length: negative},
		"ping in 16 bits":        {op: ping, payload: "Hello", length: by16},
	} {
		cs = append(cs, Case{Section: "6455 5.2", Name: "length: " + name, send: []frame{f}, closes: protocolError})
	}
	return cs
}

// pings is RFC 6455 5.5.2 and 5.5.3.
func pings() (cs []Case) {
	add := func(name string, chop int, closes []int, send []frame, want ...frame) {
		cs = append(cs, Case{Section: "6455 5.5.2", Name: name, chop: chop, closes: closes, send: send, want: want})
	}
	binary := "\x00\xff\xfe\xfd\xfc\xfb\x00\xff"
	longest := strings.Repeat("\xfe", 125)
	for _, p := range []string{"", "Hello, world!", binary, longest} {
		add(fmt.Sprintf("ping of %d bytes", len(p)), 0, nil, []frame{message(ping, p)}, message(pong, p))
		add(fmt.Sprintf("ping of %d bytes, byte by byte", len(p)), 1, nil, []frame{message(ping, p)}, message(pong, p))
	}
	add("ping of 126 bytes", 0, protocolError, []frame{message(ping, longest+"x")})
	add("pong of 126 bytes", 0, protocolError, []frame{message(pong, longest+"x")})
	add("unasked pong", 0, nil, []frame{message(pong, "")})
	add("unasked pong with payload", 0, nil, []frame{message(pong, "unasked")})
	add("unasked pong, then a ping", 0, nil, []frame{message(pong, "unasked"), message(ping, "asked")}, message(pong, "asked"))
	var send, want []frame
	for i := range 10 {
		send = append(send, message(ping, fmt.Sprint("payload-", i)))
		want = append(want, message(pong, fmt.Sprint("payload-", i)))
	}
	add("10 pings", 0, nil, send, want...)
	add("10 pings, byte by byte", 1, nil, send, want...)
	return cs
}

// reserved is RFC 6455 5.2: bits and opcodes that mean nothing yet.
func reserved() (cs []Case) {
	hello := message(text, "Hello, world!")
	for rsv := byte(1); rsv < 8; rsv++ {
		for _, op := range []byte{text, bin, opClose, ping, pong} {
			bad := frame{op: op, rsv: rsv, payload: "\x03\xe8ab"}
			cs = append(cs,
				Case{Section: "6455 5.2", Name: fmt.Sprintf("reserved bits %d, opcode %d", rsv, op), send: []frame{bad}, closes: protocolError},
				Case{Section: "6455 5.2", Name: fmt.Sprintf("reserved bits %d, opcode %d after a message, byte by byte", rsv, op), send: []frame{hello, bad, message(ping, "")}, chop: 1, want: []frame{hello}, closes: protocolError})
		}
	}
	for _, op := range []byte{3, 4, 5, 6, 7, 11, 12, 13, 14, 15} {
		for _, p := range []string{"", "payload"} {
			cs = append(cs,
				Case{Section: "6455 5.2", Name: fmt.Sprintf("opcode %d, %d bytes", op, len(p)), send: []frame{message(op, p)}, closes: protocolError},
				Case{Section: "6455 5.2", Name: fmt.Sprintf("opcode %d, %d bytes after a message", op, len(p)), send: []frame{hello, message(op, p), message(ping, "")}, want: []frame{hello}, closes: protocolError})
		}
	}
	return cs
}

// fragments is RFC 6455 5.4.
func fragments() (cs []Case) {
	whole := message(text, "fragment1fragment2")
	first, last := frame{op: text, more: true, payload: "fragment1"}, frame{op: cont, payload: "fragment2"}
	middle := frame{op: cont, more: true, payload: "fragment2"}
	p := message(ping, "ping payload")
	q := message(pong, "ping payload")
	for _, c := range []Case{
		{Name: "ping in two fragments", send: []frame{{op: ping, more: true, payload: "a"}, {op: cont, payload: "b"}}, closes: protocolError},
		{Name: "pong in two fragments", send: []frame{{op: pong, more: true, payload: "a"}, {op: cont, payload: "b"}}, closes: protocolError},
		{Name: "close in two fragments", send: []frame{{op: opClose, more: true, payload: "\x03\xe8"}, {op: cont, payload: "b"}}, closes: protocolError},
		{Name: "text in two fragments", send: []frame{first, last}, want: []frame{whole}},
		{Name: "ping between", send: []frame{first, p, last}, want: []frame{q, whole}},
		{Name: "pong between", send: []frame{first, q, last}, want: []frame{whole}},
		{Name: "continuation first", send: []frame{{op: cont, payload: "x"}, whole}, closes: protocolError},
		{Name: "continuation first, not last", send: []frame{{op: cont, more: true, payload: "x"}, whole}, closes: protocolError},
		{Name: "continuation after a message", send: []frame{whole, {op: cont, payload: "x"}}, want: []frame{whole}, closes: protocolError},
		{Name: "text inside of text", send: []frame{first, {op: text, payload: "x"}}, closes: protocolError},
		{Name: "binary inside of text", send: []frame{first, {op: bin, payload: "x"}}, closes: protocolError},
		{Name: "first fragment twice", send: []frame{first, first, last}, closes: protocolError},
		{Name: "empty fragments", send: []frame{{op: text, more: true}, {op: cont, more: true}, {op: cont}}, want: []frame{message(text, "")}},
		{Name: "content in the middle only", send: []frame{{op: text, more: true}, {op: cont, more: true, payload: "middle"}, {op: cont}}, want: []frame{message(text, "middle")}},
		{Name: "binary in two fragments", send: []frame{{op: bin, more: true, payload: "\xff"}, {op: cont, payload: "\xfe"}}, want: []frame{message(bin, "\xff\xfe")}},
		{
			Name: "five fragments with pings between", want: []frame{q, q, message(text, "fragment1fragment2fragment2fragment2fragment2")},
			send: []frame{first, middle, p, middle, middle, p, last},
		},
	} {
		c.Section = "6455 5.4"
		cs = append(cs, c)
		c.chop, c.Name = 1, c.Name+", byte by byte"
		cs = append(cs, c)
	}
	return cs
}

// masking is RFC 6455 5.1.
func masking() []Case {
	return []Case{
		{Section: "6455 5.1", Name: "message masked by a server, not masked by a client", send: []frame{{op: text, payload: "Hello", wrong: true}}, closes: protocolError},
		{Section: "6455 5.1", Name: "ping masked by a server, not masked by a client", send: []frame{{op: ping, payload: "Hello", wrong: true}}, closes: protocolError},
		{Section: "6455 5.1", Name: "close masked by a server, not masked by a client", send: []frame{{op: opClose, payload: "\x03\xe8", wrong: true}}, closes: protocolError},
	}
}

// closing is RFC 6455 5.5.1 and 7.4.
func closing() (cs []Case) {
	add := func(section, name string, closes []int, want []frame, send ...frame) {
		cs = append(cs, Case{Section: section, Name: name, closes: closes, want: want, send: send})
	}
	code := func(n int) string { return string([]byte{byte(n >> 8), byte(n)}) }
	hello := message(text, "Hello, world!")
	normal := message(opClose, code(1000))
	add("6455 5.5.1", "message, then close", []int{1000}, []frame{hello}, hello, normal)
	add("6455 5.5.1", "close twice", []int{1000}, nil, normal, normal)
	add("6455 5.5.1", "ping after close", []int{1000}, nil, normal, message(ping, ""))
	add("6455 5.5.1", "message after close", []int{1000}, nil, normal, hello)
	add("6455 5.5.1", "close between fragments", []int{1000}, nil, frame{op: text, more: true, payload: "a"}, normal, frame{op: cont, payload: "b"})
	add("6455 5.5.1", "large message, close, ping", []int{1000}, []frame{message(text, strings.Repeat("BAsd7&jh23", 26_000))}, message(text, strings.Repeat("BAsd7&jh23", 26_000)), normal, message(ping, ""))
	add("6455 5.5.1", "close without payload", []int{1005, 1000}, nil, message(opClose, ""))
	add("6455 5.5.1", "close of one byte", protocolError, nil, message(opClose, "a"))
	add("6455 5.5.1", "close with a reason", []int{1000}, nil, message(opClose, code(1000)+"Hello world!"))
	add("6455 5.5.1", "close with the longest reason", []int{1000}, nil, message(opClose, code(1000)+strings.Repeat("*", 123)))
	add("6455 5.5.1", "close with a longer reason", protocolError, nil, message(opClose, code(1000)+strings.Repeat("*", 124)))
	add("6455 5.5.1", "close with a reason that is not UTF-8", invalid, nil, message(opClose, code(1000)+"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited"))
	for _, n := range []int{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999} {
		add("6455 7.4", fmt.Sprint("code ", n), []int{n, 1000}, nil, message(opClose, code(n)))
	}
	for _, n := range []int{0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535} {
		add("6455 7.4", fmt.Sprint("code ", n), protocolError, nil, message(opClose, code(n)))
	}
	return cs
}

// volume has large messages, many fragments, small writes and many messages.
func volume() (cs []Case) {
	for number, op := range map[string]byte{"9.3.1": text, "9.4.1": bin} {
		cs = append(cs, Case{
			Section: "6455 5.4", Name: fmt.Sprintf("Autobahn %s: opcode %d, 4 MiB in 65537 fragments, the last one empty", number, op),
			send: slices.Concat([]frame{{op: op, more: true, payload: strings.Repeat("*", 64)}},
				slices.Repeat([]frame{{op: cont, more: true, payload: strings.Repeat("*", 64)}}, 1<<16-1), []frame{{op: cont}}),
			want: []frame{message(op, strings.Repeat("*", 4<<20))},
		})
	}
	for _, op := range []byte{text, bin} {
		for _, n := range []int{64 << 10, 256 << 10, 1 << 20, 4 << 20} {
			m := message(op, strings.Repeat("*", n))
			cs = append(cs, Case{Section: "6455 5.4", Name: fmt.Sprintf("opcode %d, %d KiB", op, n>>10), send: []frame{m}, want: []frame{m}})
		}
		for _, size := range []int{64, 256, 1300, 4096, 65536} {
			m := message(op, strings.Repeat("*", 1<<18))
			c := Case{Section: "6455 5.4", Name: fmt.Sprintf("opcode %d, 256 KiB in fragments of %d", op, size), want: []frame{m}}
			for rest := m.payload; rest != ""; {
				n := min(size, len(rest))
				f := frame{op: cont, payload: rest[:n], more: n < len(rest)}
				if len(c.send) == 0 {
					f.op = op
				}
				c.send, rest = append(c.send, f), rest[n:]
			}
			cs = append(cs, c)
		}
		for _, chop := range []int{64, 256, 1024, 2048} {
			m := message(op, strings.Repeat("*", 1<<18))
			cs = append(cs, Case{Section: "6455 5.4", Name: fmt.Sprintf("opcode %d, 256 KiB in writes of %d", op, chop), send: []frame{m}, chop: chop, want: []frame{m}})
		}
		for _, n := range []int{0, 16, 256, 4096} {
			m := message(op, strings.Repeat("*", n))
			all := slices.Repeat([]frame{m}, 200)
			cs = append(cs, Case{Section: "6455 5.4", Name: fmt.Sprintf("opcode %d, 200 messages of %d", op, n), send: all, want: all})
		}
	}
	return cs
}

// deflate is RFC 7692: the sets of parameters, sizes of messages, fragments, and what must not be.
func deflate() (cs []Case) {
	const p = "permessage-deflate"
	sets := []Parameters{
		{Offer: p, Response: p, ServerBits: 15, ClientBits: 15},
		{Offer: p + "; server_no_context_takeover", Response: p + "; server_no_context_takeover", ServerNoTakeover: true, ServerBits: 15, ClientBits: 15},
		{Offer: p + "; client_no_context_takeover", Response: p + "; client_no_context_takeover", ClientNoTakeover: true, ServerBits: 15, ClientBits: 15},
		{Offer: p + "; client_no_context_takeover; server_no_context_takeover", Response: p + "; client_no_context_takeover; server_no_context_takeover", ServerNoTakeover: true, ClientNoTakeover: true, ServerBits: 15, ClientBits: 15},
		{Offer: p + "; server_max_window_bits=8", Response: p + "; server_max_window_bits=8", ServerBits: 8, ClientBits: 15},
		{Offer: p + "; server_max_window_bits=9; client_max_window_bits=9", Response: p + "; server_max_window_bits=9; client_max_window_bits=9", ServerBits: 9, ClientBits: 9},
		{Offer: p + "; server_max_window_bits=15; client_max_window_bits", Response: p + "; server_max_window_bits=15", ServerBits: 15, ClientBits: 15},
		{Offer: p + "; server_max_window_bits=9; server_no_context_takeover; client_no_context_takeover", Response: p + "; server_max_window_bits=9; server_no_context_takeover; client_no_context_takeover", ServerNoTakeover: true, ClientNoTakeover: true, ServerBits: 9, ClientBits: 15},
		{Offer: p + "; unknown, " + p + "; server_max_window_bits=12", Response: p + "; server_max_window_bits=12", ServerBits: 12, ClientBits: 15},
	}
	for i := range sets {
		set := &sets[i]
		for _, size := range []int{0, 16, 64, 256, 1024, 4096, 8192, 16384, 32768, 65536, 131072} {
			m := compressedMessage(text, sample(size))
			all := slices.Repeat([]frame{m}, 10)
			want := slices.Repeat([]frame{message(text, m.payload)}, 10)
			cs = append(cs, Case{Section: "7692 7.1", Name: fmt.Sprintf("%s: 10 messages of %d", set.Offer, size), Deflate: set, send: all, want: want})
		}
	}
	set := &sets[0]
	add := func(section, name string, closes []int, want []frame, send ...frame) {
		cs = append(cs, Case{Section: section, Name: name, Deflate: set, closes: closes, want: want, send: send})
	}
	hello := message(text, "Hello")
	raw := func(p string) frame { return frame{op: text, rsv: 4, payload: p} }
	add("7692 7.2.3.1", "one fixed block", nil, []frame{hello}, raw("\xf2\x48\xcd\xc9\xc9\x07\x00"))
	add("7692 7.2.3.1", "in two fragments", nil, []frame{hello}, frame{op: text, rsv: 4, more: true, payload: "\xf2\x48\xcd"}, frame{op: cont, payload: "\xc9\xc9\x07\x00"})
	add("7692 7.2.3.2", "sharing the window", nil, []frame{hello, hello}, raw("\xf2\x48\xcd\xc9\xc9\x07\x00"), raw("\xf2\x00\x11\x00\x00"))
	add("7692 7.2.3.3", "a stored block", nil, []frame{hello}, raw("\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00"))
	add("7692 7.2.3.4", "a final block", nil, []frame{hello, hello}, raw("\xf3\x48\xcd\xc9\xc9\x07\x00\x00"), raw("\xf2\x48\xcd\xc9\xc9\x07\x00"))
	add("7692 7.2.3.5", "two blocks", nil, []frame{hello}, raw("\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00"))
	add("7692 7.2.3.6", "the empty message", nil, []frame{message(text, "")}, raw("\x00"))
	add("7692 6", "a message that is not compressed", nil, []frame{hello}, hello)
	add("7692 6", "ping between compressed fragments", nil, []frame{message(pong, "p"), hello}, frame{op: text, rsv: 4, more: true, payload: "\xf2\x48\xcd"}, message(ping, "p"), frame{op: cont, payload: "\xc9\xc9\x07\x00"})
	add("7692 6", "empty compressed fragments", nil, []frame{hello}, frame{op: text, rsv: 4, more: true}, frame{op: cont, more: true, payload: "\xf2\x48\xcd\xc9\xc9\x07\x00"}, frame{op: cont})
	add("7692 6", "RSV1 on a continuation", protocolError, nil, frame{op: text, rsv: 4, more: true, payload: "\xf2\x48\xcd"}, frame{op: cont, rsv: 4, payload: "\xc9\xc9\x07\x00"})
	add("7692 6", "RSV1 on a continuation of a plain message", protocolError, nil, frame{op: text, more: true, payload: "a"}, frame{op: cont, rsv: 4, payload: "b"})
	add("7692 6", "RSV1 on a ping", protocolError, nil, frame{op: ping, rsv: 4})
	add("7692 6", "RSV1 on a close", protocolError, nil, frame{op: opClose, rsv: 4, payload: "\x03\xe8"})
	add("7692 6", "RSV2", protocolError, nil, frame{op: text, rsv: 2, payload: "a"})
	add("7692 7.2.2", "no DEFLATE data", []int{1007, 1002}, nil, raw("\xff\xff\xff\xff"))
	add("7692 7.2.2", "a reference before the beginning", []int{1007, 1002}, nil, raw("\xf2\x00\x11\x00\x00"))
	add("7692 7.2.2", "cut data", []int{1007, 1002}, nil, raw("\xf2\x48\xcd\xc9"))
	add("6455 8.1", "compressed text that is not UTF-8", invalid, nil, compressedMessage(text, "\xce\xba\xed\xa0\x80"))
	return cs
}

// compressedMessage is a message that the runner compresses.
func compressedMessage(op byte, p string) frame { return frame{op: op, rsv: compress, payload: p} }

// compress marks a frame whose payload the runner compresses.
const compress = 0xFF

// sample returns text with some redundancy.
func sample(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "{\"id\": %d, \"user\": \"name-%d\", \"text\": \"%x\"}, ", i, i*7%100, i*2654435761)
	}
	return b.String()[:n]
}
