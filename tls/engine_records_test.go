package tls

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"testing"
)

// TestEngineKeyUpdates changes keys on both ends, asked for and by itself, between data.
func TestEngineKeyUpdates(t *testing.T) {
	s, c := engineConfigs(t)
	srv, cli := handshaken(t, s, c, EngineOptions{}, wholly)
	first := bytes.Clone(srv.own.write.secret)
	for _, request := range []bool{false, true, true} {
		for _, x := range []*end{srv, cli} {
			if err := x.UpdateKeys(request); err != nil {
				t.Fatal(err)
			}
			say(t, srv, cli, []byte("to the client"), byteWise)
			say(t, cli, srv, []byte("to the server"), byteWise)
		}
	}
	if bytes.Equal(first, srv.own.write.secret) {
		t.Fatal("the keys are the same")
	}
	if !bytes.Equal(srv.own.write.secret, cli.own.read.secret) || !bytes.Equal(cli.own.write.secret, srv.own.read.secret) {
		t.Fatal("the ends have different keys")
	}
	for _, size := range []int{1, 50000} {
		srv.own.write.seq, cli.own.read.seq = maxRecordsPerKey, maxRecordsPerKey
		say(t, srv, cli, make([]byte, size), wholly)
		if srv.own.write.seq > 100 {
			t.Errorf("sequence number %d after %d bytes: the key has no limit", srv.own.write.seq, size)
		}
	}
	s.MaxVersion = tls.VersionTLS12
	srv, _ = handshaken(t, s, c, EngineOptions{}, wholly)
	if err := srv.UpdateKeys(true); !errors.Is(err, ErrKeyUpdate) {
		t.Errorf("TLS 1.2: %v", err)
	}
}

// TestEngineTickets has a client store sessions that come late: after data, after key updates, in two records, and more
// of them than crypto/tls bears without data between.
func TestEngineTickets(t *testing.T) {
	s, c := engineConfigs(t)
	c.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	srv, cli := &end{Engine: NewServerEngine(s, EngineOptions{})}, &end{Engine: NewClientEngine(c, EngineOptions{})}
	for !cli.Handshaken() {
		srv.feed(cli.take(), wholly)
		cli.feed(srv.take(), wholly)
	}
	exchange(srv, cli, wholly)
	first, ok := c.ClientSessionCache.Get("example.com")
	if !ok {
		t.Fatal("no session was stored")
	}
	ticket, _, err := first.ResumptionState()
	if err != nil {
		t.Fatal(err)
	}
	// lifetime, age_add, nonce, ticket, extensions
	body := append([]byte{0, 0, 1, 0, 0, 0, 0, 0, 1, 9, byte(len(ticket) >> 8), byte(len(ticket))}, ticket...)
	m := message(messageNewSessionTicket, append(body, 0, 0)...)
	for i := range 40 {
		c.ClientSessionCache.Put("example.com", nil)
		if i%3 == 0 {
			_ = srv.UpdateKeys(true)
		}
		say(t, srv, cli, make([]byte, 20000), wholly)
		cut := 1 + i%len(m)
		cli.feed(both(sealed(typeHandshake, m[:cut]), sealed(typeHandshake, m[cut:]))(srv.own), byteWise)
		if _, ok := c.ClientSessionCache.Get("example.com"); !ok || cli.err != nil {
			t.Fatalf("ticket %d: stored %v, %v", i, ok, cli.err)
		}
	}
	// A peer may cut messages to single bytes.
	c.ClientSessionCache.Put("example.com", nil)
	for i := range m {
		cli.feed(sealed(typeHandshake, m[i:i+1])(srv.own), wholly)
	}
	if _, ok := c.ClientSessionCache.Get("example.com"); !ok || cli.err != nil {
		t.Errorf("a ticket in %d records: stored %v, %v", len(m), ok, cli.err)
	}
	say(t, cli, srv, []byte("after"), wholly)
	body[0], body[1] = 0xff, 0xff // a lifetime of more than a week (RFC 8446 4.6.1)
	cli.feed(sealed(typeHandshake, message(messageNewSessionTicket, append(body, 0, 0)...))(srv.own), wholly)
	var alert tls.AlertError
	if !errors.As(cli.err, &alert) || alert != alertIllegalParameter {
		t.Errorf("a ticket that lives too long: %v", cli.err)
	}
}

// TestEngineMessageOfBytes has a peer send the largest message in records of one byte: it is collected without being copied
// for each.
func TestEngineMessageOfBytes(t *testing.T) {
	s, c := engineConfigs(t)
	srv, cli := handshaken(t, s, c, EngineOptions{}, wholly)
	head := []byte{messageNewSessionTicket, 0, 0xff, 0}
	moves := 0
	for i := range 4000 {
		before := cap(cli.own.message)
		b := byte(0)
		if i < len(head) {
			b = head[i]
		}
		cli.feed(sealed(typeHandshake, []byte{b})(srv.own), wholly)
		if cap(cli.own.message) != before {
			moves++
		}
	}
	if cli.err != nil || len(cli.own.message) != 4000 || moves > 40 {
		t.Errorf("%v, %d bytes, copied %d times", cli.err, len(cli.own.message), moves)
	}
}

// TestEngineMessagesAcrossRecords has records that end one message and begin the next: each is handled once.
func TestEngineMessagesAcrossRecords(t *testing.T) {
	s, c := engineConfigs(t)
	srv, cli := handshaken(t, s, c, EngineOptions{}, wholly)
	m := message(messageNewSessionTicket, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 'x', 0, 0)
	all := bytes.Repeat(m, 9)
	for at, n := 0, 1; at < len(all); n++ {
		part := all[at:min(len(all), at+n)]
		at += len(part)
		cli.feed(sealed(typeHandshake, part)(srv.own), wholly)
	}
	if cli.err != nil || cli.own.messages != 9 || cli.own.message != nil {
		t.Errorf("%v, %d messages, %d bytes left", cli.err, cli.own.messages, len(cli.own.message))
	}
}

// TestEngineBackPressure has a peer that does not read: Write accepts what Output allows, and continues later.
func TestEngineBackPressure(t *testing.T) {
	for _, o := range []EngineOptions{{}, {Output: 100 << 10}, {Output: 1}, {StandardRecords: true}} {
		s, c := engineConfigs(t)
		srv, cli := handshaken(t, s, c, o, wholly)
		data := bytes.Repeat([]byte("0123456789"), 100000)
		var sent, most int
		for sent < len(data) {
			n, err := srv.Write(data[sent:])
			if err != nil {
				t.Fatal(err)
			}
			sent += n
			if m, err := srv.Write(data[sent:]); m > 0 && err == nil {
				t.Fatalf("a second Write accepted %d bytes after %d", m, n)
			}
			most = max(most, len(srv.Pending()))
			part := bytes.Clone(srv.Pending()[:1+len(srv.Pending())/3])
			srv.Advance(len(part))
			cli.feed(part, wholly)
		}
		exchange(srv, cli, wholly)
		if !bytes.Equal(cli.data, data) {
			t.Errorf("%+v: %d bytes of %d", o, len(cli.data), len(data))
		}
		limit := max(o.Output, maxRecord)
		if o.Output == 0 {
			limit = DefaultOutput
		}
		if most > limit+1000 || most < limit/4 {
			t.Errorf("%+v: at most %d bytes were pending", o, most)
		}
	}
}

// TestEngineSeal makes records in buffers of all sizes, behind what was pending, and never exceeds their capacity.
func TestEngineSeal(t *testing.T) {
	for _, m := range modes {
		s, c := m.configs(t)
		srv, cli := handshaken(t, s, c, m.options, wholly)
		data := bytes.Repeat([]byte("0123456789"), 30000)
		sent := 0
		for room := 1; sent < len(data); room = (room*5 + 7) % 40000 {
			if room%13 == 0 {
				n, err := srv.Write(data[sent:min(len(data), sent+100)])
				if err != nil {
					t.Fatal(err)
				}
				sent += n
			}
			if srv.own != nil && m.version == tls.VersionTLS13 && room%3 == 0 {
				srv.own.write.seq, cli.own.read.seq = maxRecordsPerKey, maxRecordsPerKey
				exchange(srv, cli, wholly)
			}
			memory := make([]byte, room+100)
			for i := range memory {
				memory[i] = 0xEE
			}
			out, n, err := srv.Seal(memory[:10:10+room], data[sent:])
			if err != nil || len(out) > 10+room || &out[0] != &memory[0] {
				t.Fatalf("%d bytes of %d, %v", len(out), room, err)
			}
			if !bytes.Equal(memory[10+room:], bytes.Repeat([]byte{0xEE}, 90)) {
				t.Fatal("it wrote behind the buffer")
			}
			sent += n
			cli.feed(out[10:], wholly)
			if cli.err != nil {
				t.Fatal(cli.err)
			}
		}
		exchange(srv, cli, wholly)
		if !bytes.Equal(cli.data, data) {
			t.Errorf("%s: %d bytes of %d arrived, or others", m.name, len(cli.data), len(data))
		}
	}
}

// TestEngineOrderOfCalls calls what is not permitted yet, or not any more.
func TestEngineOrderOfCalls(t *testing.T) {
	s, c := engineConfigs(t)
	e := NewServerEngine(s, EngineOptions{})
	_, errW := e.Write([]byte("x"))
	_, _, errS := e.Seal(make([]byte, 0, 100), []byte("x"))
	for _, err := range []error{errW, errS, e.CloseWrite(), e.UpdateKeys(false)} {
		if !errors.Is(err, ErrHandshaking) {
			t.Errorf("during the handshake: %v", err)
		}
	}
	if e.ConnectionState().HandshakeComplete || e.Handshaken() || e.OwnRecords() {
		t.Error("the handshake is complete")
	}
	e.Close()
	if err := e.CloseWrite(); !errors.Is(err, ErrEngineClosed) {
		t.Errorf("after Close: %v", err)
	}
	for _, o := range []EngineOptions{{}, {StandardRecords: true}} {
		srv, cli := handshaken(t, s, c, o, wholly)
		if err := errors.Join(srv.CloseWrite(), srv.CloseWrite()); err != nil {
			t.Error(err)
		}
		if n := len(srv.Pending()); n == 0 || n > 30 {
			t.Errorf("close_notify has %d bytes", n)
		}
		if cli.own != nil {
			read := cli.own.read // the next record is opened again
			p, typ, err := read.open(bytes.Clone(srv.Pending()))
			if err != nil || typ != typeAlert || !bytes.Equal(p, []byte{levelWarning, 0}) {
				t.Errorf("close_notify is %v of type %d, %v", p, typ, err)
			}
		}
		exchange(srv, cli, wholly)
		say(t, cli, srv, []byte("still"), wholly)
		if cli.err != nil || len(cli.events) != 2 || cli.events[1] != PeerClosed {
			t.Errorf("events %v, %v", cli.events, cli.err)
		}
		if _, n, err := cli.Next([]byte("ignored")); n != 7 || err != nil {
			t.Error("input after close_notify:", n, err)
		}
	}
}

// TestEngineAllocatesNothing seals and opens with the engine's own records, in place and in pieces.
func TestEngineAllocatesNothing(t *testing.T) {
	for _, m := range modes {
		if !m.own {
			continue
		}
		s, c := m.configs(t)
		srv, cli := handshaken(t, s, c, m.options, wholly)
		data := make([]byte, 5000)
		wire := make([]byte, 0, 3*maxRecord)
		got := 0
		allocs := testing.AllocsPerRun(200, func() {
			wire = wire[:0]
			n, err := srv.Write(data)
			wire, _, _ = srv.Seal(wire, nil)
			wire, m, err2 := srv.Seal(wire, data)
			if n != len(data) || m != len(data) || err != nil || err2 != nil {
				t.Fatal(n, m, err, err2)
			}
			for rest := wire; len(rest) > 0; {
				part := rest[:min(len(rest), 3000)]
				rest = rest[len(part):]
				for {
					ev, n, err := cli.Next(part)
					part = part[n:]
					if got += len(ev.Data); err != nil {
						t.Fatal(err)
					}
					if ev.Kind == NeedInput {
						break
					}
				}
			}
		})
		if allocs >= 1 && !raceEnabled { // a collection may empty the pool
			t.Errorf("%s: %v allocations", m.name, allocs)
		}
		if got != 201*2*len(data) {
			t.Errorf("%s: %d bytes arrived", m.name, got)
		}
	}
}

// TestEngineHoldsNoBuffers has an idle engine hold no buffer after large records, a small one for a part of a small record.
func TestEngineHoldsNoBuffers(t *testing.T) {
	s, c := engineConfigs(t)
	srv, cli := handshaken(t, s, c, EngineOptions{}, wholly)
	say(t, srv, cli, make([]byte, 1<<20), randomCuts(3))
	say(t, cli, srv, make([]byte, 1<<20), randomCuts(4))
	for _, x := range []*end{srv, cli} {
		if _, _, err := x.Next(nil); err != nil {
			t.Fatal(err)
		}
		if x.own.input.buf != nil || x.out.pooled != nil || x.out.buf != nil || x.own.message != nil {
			t.Error("an idle engine holds a buffer")
		}
	}
	if err := srv.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	cli.feed(srv.take(), byteWise)
	if cli.own.input.buf != nil {
		t.Error("an engine holds close_notify")
	}
	record := sealed(typeData, make([]byte, 100))(cli.own)
	srv.feed(record[:50], wholly)
	if b := srv.own.input.buf; b == nil || cap(*b) != smallBuffer {
		t.Error("half of a small record holds another buffer than a small one")
	}
	srv.Close()
	if srv.own.input.buf != nil {
		t.Error("a closed engine holds a buffer")
	}
	if err := srv.InputClosed(); errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error("a closed engine took the end of input")
	}
}

// TestEngineRecordsGrow has the first records of a connection fit in segments, unless the Config says otherwise.
func TestEngineRecordsGrow(t *testing.T) {
	for _, fixed := range []bool{false, true} {
		s, c := engineConfigs(t)
		s.DynamicRecordSizingDisabled = fixed
		srv, _ := handshaken(t, s, c, EngineOptions{Output: 1 << 20}, wholly)
		if _, err := srv.Write(make([]byte, 400<<10)); err != nil {
			t.Fatal(err)
		}
		var sizes []int
		for p := srv.Pending(); len(p) > 0; p = p[sizes[len(sizes)-1]:] {
			sizes = append(sizes, recordHeader+int(p[3])<<8+int(p[4]))
		}
		full := maxPlaintext + maxOverhead - 8 // no explicit nonce
		for i, n := range sizes[:len(sizes)-1] {
			want := min(full, segment*(i+1))
			if fixed {
				want = full
			}
			if n > want || n < want-40*(i+1) {
				t.Errorf("fixed %v: record %d has %d bytes, want %d", fixed, i, n, want)
			}
		}
	}
}
