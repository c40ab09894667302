package fastcgi

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

// rest is what Machine gets in pieces of a size: the events of a stream of records, with payloads joined.
type rest struct {
	out, log string
	ends     []Status
}

// read decodes all of p, in pieces of n bytes.
func read(t *testing.T, m *Machine, p []byte, n int) (r rest, err error) {
	t.Helper()
	for len(p) > 0 {
		piece := p[:min(n, len(p))]
		p = p[len(piece):]
		for {
			ev, k, err := m.Next(piece)
			if err != nil {
				return r, err
			}
			if k > len(piece) {
				t.Fatalf("%d of %d bytes taken", k, len(piece))
			}
			piece = piece[k:]
			switch ev.Kind {
			case Stdout:
				r.out += string(ev.Payload)
			case Stderr:
				r.log += string(ev.Payload)
			case End:
				r.ends = append(r.ends, ev.Status)
			}
			if ev.Kind == NeedInput {
				if len(piece) > 0 {
					t.Fatalf("%d bytes are left where more input is needed", len(piece))
				}
				break
			}
		}
	}
	return r, nil
}

// record is a record as an application may send it, with padding.
func record(kind recordType, content string, padding int) []byte {
	return append([]byte{version, byte(kind), 0, ID, byte(len(content) >> 8), byte(len(content)), byte(padding), 0}, content+strings.Repeat("p", padding)...)
}

func ended(status Status) []byte {
	return record(typeEnd, string([]byte{0, 0, 0, 9, byte(status), 0, 0, 0}), 0)
}

func TestResponsesAreReadInPiecesOfAnySize(t *testing.T) {
	stream := bytes.Join([][]byte{
		record(typeStdout, "Status: 200\r\n\r\n", 3), record(typeStderr, "a warning", 7), record(typeStdout, "content", 0),
		{version, byte(typeValues), 0, 0, 0, 2, 1, 0, 'x', 'y', 'p'},
		record(typeStderr, "", 0), record(typeStdout, "", 5), record(typeStderr, "!", 0), ended(Complete),
		record(typeStdout, strings.Repeat("second", 900), 255), ended(Overloaded),
	}, nil)
	for n := 1; n < 70; n++ {
		var m Machine
		got, err := read(t, &m, stream, n)
		if want := "Status: 200\r\n\r\ncontent" + strings.Repeat("second", 900); err != nil || got.out != want || got.log != "a warning!" || len(got.ends) != 2 || got.ends[1] != Overloaded {
			t.Fatalf("pieces of %d: %d bytes, %q, %v, %v", n, len(got.out), got.log, got.ends, err)
		}
		if !m.Idle() {
			t.Fatal("the machine is within a record")
		}
	}
}

func TestWrongRecordsAreErrors(t *testing.T) {
	for name, c := range map[string]struct {
		p    []byte
		want Error
	}{
		"version":         {[]byte{2, byte(typeStdout), 0, 1, 0, 0, 0, 0}, ErrVersion},
		"HTTP":            {[]byte("HTTP/1.1 200 OK\r\n\r\n"), ErrVersion},
		"request":         {record(typeStdin, "x", 0), ErrType},
		"begin":           {AppendBegin(nil, true), ErrType},
		"unknown":         {record(99, "", 0), ErrType},
		"other id":        {[]byte{version, byte(typeStdout), 0, 2, 0, 0, 0, 0}, ErrID},
		"high id":         {[]byte{version, byte(typeStdout), 1, 1, 0, 0, 0, 0}, ErrID},
		"management":      {[]byte{version, byte(typeStdout), 0, 0, 0, 0, 0, 0}, ErrID},
		"short end":       {record(typeEnd, "1234567", 0), ErrEnd},
		"status":          {ended(4), ErrEnd},
		"behind the end":  {append(record(typeStdout, "", 0), record(typeStdout, "x", 0)...), ErrAfterStdout},
		"twice at an end": {append(record(typeStdout, "", 0), record(typeStdout, "", 0)...), ErrAfterStdout},
		"empty":           {bytes.Repeat(record(typeStderr, "", 0), maxEmpty+1), ErrEmpty},
		"values":          {bytes.Repeat([]byte{version, byte(typeValues), 0, 0, 0, 1, 0, 0, 'x'}, maxEmpty+1), ErrEmpty},
	} {
		var m Machine
		if _, err := read(t, &m, c.p, 5); err != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	var m Machine
	if _, err := read(t, &m, bytes.Repeat(record(typeStderr, "", 0), maxEmpty), 9); err != nil {
		t.Errorf("%d empty records: %v", maxEmpty, err)
	}
	for e := ErrVersion; e <= ErrEmpty; e++ {
		if len(e.Error()) < 20 {
			t.Errorf("error %d has no text", e)
		}
	}
}

func TestPayloadThatIsGivenBackComesAgain(t *testing.T) {
	var m Machine
	p := record(typeStdout, "head and content", 2)
	ev, n, err := m.Next(p[:12])
	if err != nil || string(ev.Payload) != "head" || n != 12 {
		t.Fatalf("%q, %d, %v", ev.Payload, n, err)
	}
	ev, n, err = m.Next(p[12:])
	if err != nil || string(ev.Payload) != " and content" {
		t.Fatalf("%q, %v", ev.Payload, err)
	}
	m.Unread(7)
	if ev, _, err = m.Next(p[12+n-7:]); err != nil || string(ev.Payload) != "content" {
		t.Errorf("%q, %v", ev.Payload, err)
	}
}

// application reads what a web server sends, by the letter of the specification.
func application(t *testing.T, p []byte) (pairs map[string]string, stdin string, keep bool) {
	t.Helper()
	pairs = map[string]string{}
	begun, params, ended := false, 0, false
	for len(p) > 0 {
		if p[0] != version || p[2] != 0 || p[3] != ID {
			t.Fatalf("a record begins with % x", p[:8])
		}
		n, padding := int(p[4])<<8|int(p[5]), int(p[6])
		content := p[8 : 8+n]
		switch recordType(p[1]) {
		case typeBegin:
			if begun || n != 8 || content[1] != roleResponder {
				t.Fatalf("FCGI_BEGIN_REQUEST % x", content)
			}
			begun, keep = true, content[2]&keepConn != 0
		case typeParams:
			if !begun || params > 1 {
				t.Fatal("FCGI_PARAMS out of order")
			}
			if params = 1; n == 0 {
				params = 2
			}
			for len(content) > 0 {
				name, value, size, ok := cutPair(content)
				if !ok {
					t.Fatal("a pair is cut by the end of its record")
				}
				pairs[string(name)], content = string(value), content[size:]
			}
		case typeStdin:
			if params != 2 || ended {
				t.Fatal("FCGI_STDIN out of order")
			}
			stdin += string(content)
			ended = n == 0
		default:
			t.Fatalf("a record of type %d", p[1])
		}
		p = p[8+n+padding:]
	}
	if !ended {
		t.Fatal("the content has no end")
	}
	return pairs, stdin, keep
}

func TestRequestsAreWritten(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		want, pairs := map[string]string{}, []byte(nil)
		for i := range random.IntN(40) {
			name := "N" + strings.Repeat("n", random.IntN(200)) + string(rune('A'+i))
			want[name] = strings.Repeat("v", random.IntN([]int{2, 127, 129, 30000}[random.IntN(4)]))
			pairs = AppendPair(pairs, name, want[name])
		}
		content, keep := strings.Repeat("content", random.IntN(20000)), random.IntN(2) == 0
		p := AppendStdinEnd(AppendStdin(AppendParams(AppendBegin(nil, keep), pairs), []byte(content)))
		got, stdin, kept := application(t, p)
		if len(got) != len(want) || stdin != content || kept != keep {
			t.Fatalf("%d pairs of %d, %d bytes of %d, kept %v", len(got), len(want), len(stdin), len(content), kept)
		}
		for name := range want {
			if got[name] != want[name] {
				t.Fatalf("%s has %d bytes, want %d", name, len(got[name]), len(want[name]))
			}
		}
	}
}

// A pair that no record can hold goes over several, as the specification has it.
func TestAPairLongerThanARecord(t *testing.T) {
	pairs := AppendPair(AppendPair(nil, "A", "b"), "LONG", strings.Repeat("v", 3*MaxContent))
	var stream []byte
	for p := AppendParams(nil, pairs); len(p) > 0; {
		n := int(p[4])<<8 | int(p[5])
		stream, p = append(stream, p[8:8+n]...), p[8+n:]
	}
	if !bytes.Equal(stream, pairs) {
		t.Errorf("%d bytes of %d", len(stream), len(pairs))
	}
}

func TestLengthsOfPairs(t *testing.T) {
	for _, n := range []int{0, 1, 127, 128, 129, 255, 256, 65536, 1 << 20} {
		p := AppendPair(nil, strings.Repeat("n", n), strings.Repeat("v", n+1))
		name, value, size, ok := cutPair(append(p, "next"...))
		if !ok || len(name) != n || len(value) != n+1 || size != len(p) {
			t.Errorf("%d: %d, %d, %d, %v", n, len(name), len(value), size, ok)
		}
		for cut := range min(len(p), 300) {
			if _, _, _, ok := cutPair(p[:cut]); ok {
				t.Fatalf("%d: %d of %d bytes are a pair", n, cut, len(p))
			}
		}
	}
	if p := AppendPair(nil, "n", strings.Repeat("v", 127)); len(p) != 2+1+127 {
		t.Errorf("a length of 127 takes %d bytes", len(p)-127-2)
	}
}

// FuzzMachine has the same events come from any pieces of a stream, which end at the same error.
func FuzzMachine(f *testing.F) {
	f.Add(record(typeStdout, "Content-Type: text/plain\n\nx", 4), uint8(3))
	f.Add(append(record(typeStderr, "error", 1), ended(Complete)...), uint8(1))
	f.Fuzz(func(t *testing.T, p []byte, n uint8) {
		var whole, cut Machine
		a, errA := read(t, &whole, p, len(p)+1)
		b, errB := read(t, &cut, p, int(n)+1)
		if a.out != b.out || a.log != b.log || len(a.ends) != len(b.ends) || errA != errB || errA == nil && whole.Idle() != cut.Idle() {
			t.Errorf("%q, %v as a whole; %q, %v in pieces of %d", a, errA, b, errB, n)
		}
	})
}

// Records end with a pair also where the next one would just not fit.
func TestRecordsAreNotLongerThanTheyMay(t *testing.T) {
	for more := range 12 {
		first := AppendPair(nil, "A", strings.Repeat("v", MaxContent/2))
		pairs := AppendPair(first, "B", strings.Repeat("v", MaxContent-len(first)-6-6+more)) // a name, and 1 and 4 bytes of lengths
		p := AppendParams(nil, pairs)
		got, _, _ := application(t, AppendStdinEnd(append(AppendBegin(nil, false), p...)))
		if n := int(p[4])<<8 | int(p[5]); len(got) != 2 || n != len(pairs) && n != len(first) || (n == len(first)) != (len(pairs) > MaxContent) {
			t.Errorf("%d bytes of pairs: the first record has %d", len(pairs), n)
		}
	}
}
