package clienthello

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// alpn returns the extension with names.
func alpn(names ...string) []byte {
	var l []byte
	for _, n := range names {
		l = append(append(l, byte(len(n))), n...)
	}
	return ext(extALPN, append([]byte{byte(len(l) >> 8), byte(len(l))}, l...)...)
}

func TestFieldsAreThoseOfTheHello(t *testing.T) {
	b := records(message([]uint16{0x1301, 0x0a0a}, name("WWW.Example.com"), alpn("h2", "http/1.1"),
		ext(extSupportedVersions, 6, 0x1a, 0x1a, 3, 4, 3, 3), ext(extSupportedGroups, 0, 4, 0x11, 0xec, 0, 0x1d),
		ext(extSignatures, 0, 2, 4, 3), ext(extPointFormats, 1, 0), ext(extECH), ext(extEarlyData), ext(21, 0, 0), ext(extPreSharedKey)), 1<<14)
	var p Peeker
	h, err := p.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if string(h.ServerName) != "www.example.com" || !h.HasServerName || h.Version != 0x0303 || h.MaxVersion() != 0x0304 || len(h.Random) != 32 ||
		!h.ECH || !h.EarlyData || !h.PreSharedKey || !bytes.Equal(h.PointFormats, []byte{0}) || len(h.SessionID) != 0 || !bytes.Equal(h.Compression, []byte{0}) {
		t.Errorf("%+v", h)
	}
	if !h.ALPN.Contains("h2") || !h.ALPN.Contains("http/1.1") || h.ALPN.Contains("h") || h.ALPN.Contains("") {
		t.Errorf("ALPN %q", h.ALPN)
	}
	if got := h.Suites.appendTo(nil); !slices.Equal(got, []uint16{0x1301}) || h.Suites.Len() != 2 || !h.Suites.Contains(0x0a0a) || h.Groups.At(0) != 0x11ec || h.Signatures.Contains(0x0404) {
		t.Errorf("%x %x %x", got, h.Groups, h.Signatures)
	}
	if pad, ok := h.Extension(21); !ok || len(pad) != 2 {
		t.Errorf("padding %x, %v", pad, ok)
	}
	if _, ok := h.Extension(22); ok {
		t.Error("has an extension that was not sent")
	}
	// The same Peeker reads a hello without extensions: nothing of the one before stays.
	p.Reset()
	if h, err = p.Parse(records(message([]uint16{0x002f}), 1<<14)); err != nil {
		t.Fatal(err)
	}
	if h.ServerName != nil || h.HasServerName || h.ALPN != nil || h.ECH || h.EarlyData || h.PreSharedKey || h.MaxVersion() != 0x0303 ||
		h.Versions.Len()+h.Groups.Len()+h.Signatures.Len()+len(h.PointFormats) > 0 || h.JA4() != "t12i010000_"+h.JA4()[11:] {
		t.Errorf("%+v %s", h, h.JA4())
	}
}

func TestEveryCutIsIncompleteAndEveryFragmentationTheSame(t *testing.T) {
	whole := stream(t, chromeConfig)
	var p Peeker
	h, err := p.Parse(whole)
	if err != nil {
		t.Fatal(err)
	}
	want := h.JA4()
	message := bytes.Clone(whole[recordHeader:])
	for _, size := range []int{1, 2, 3, 4, 5, 100, len(message) - 1, len(message)} {
		b := records(message, size)
		p.Reset()
		for n := range len(b) { // one byte more at a time
			if h, err := p.Parse(b[:n]); err != ErrIncomplete || h != nil {
				t.Fatalf("records of %d: %d of %d bytes: %v", size, n, len(b), err)
			}
		}
		after := append(bytes.Clone(b), "0-RTT data"...)
		if h, err := p.Parse(after); err != nil || h.JA4() != want || string(h.ServerName) != "www.example.com" {
			t.Errorf("records of %d: %v", size, err)
		}
		p.Reset()
		if h, err := p.Parse(b); err != nil || h.JA4() != want { // at once
			t.Errorf("records of %d at once: %v", size, err)
		}
	}
	for n := range len(message) {
		if err := ParseMessage(message[:n], new(Hello)); err != ErrIncomplete {
			t.Fatalf("%d bytes of the message: %v", n, err)
		}
	}
	var m Hello
	if err := ParseMessage(append(message, 1, 2, 3), &m); err != nil || m.JA4() != want {
		t.Error(err)
	}
}

func TestWhatIsNoHelloHasItsAlert(t *testing.T) {
	good := message([]uint16{0x1301}, name("a.example"))
	body := func(b ...byte) []byte { // a message with a body that ends early or otherwise wrong
		return append([]byte{1, 0, byte(len(b) >> 8), byte(len(b))}, b...)
	}
	fixed := append([]byte{3, 3}, make([]byte, 32)...)
	one := func(e ...[]byte) []byte { return records(message([]uint16{1}, e...), 1<<14) }
	many := make([][]byte, maxExtensions+1)
	for i := range many {
		many[i] = ext(uint16(1000 + i))
	}
	for what, tc := range map[string]struct {
		b    []byte
		want *Error
	}{
		"HTTP":                 {[]byte("GET / HTTP/1.1\r\n"), errRecordType},
		"one wrong byte":       {[]byte{0x80}, errRecordType},
		"SSLv2":                {[]byte{0x80, 0x2e, 1, 0, 2}, errRecordType},
		"alert":                {[]byte{21, 3, 1, 0, 2, 2, 40}, errRecordType},
		"version":              {[]byte{22, 2, 0}, errRecordVersion},
		"record too long":      {[]byte{22, 3, 1, 0x40, 1}, errRecordLength},
		"empty record":         {[]byte{22, 3, 1, 0, 0}, errRecordEmpty},
		"empty second record":  {append(records(good[:9], 9), 22, 3, 1, 0, 0), errRecordEmpty},
		"interleaved":          {append(records(good[:9], 9), 23, 3, 1, 0, 1, 0), errInterleaved},
		"ServerHello":          {[]byte{22, 3, 1, 0, 50, 2}, errMessageType},
		"length over limit":    {[]byte{22, 3, 1, 0, 4, 1, 0, 0x80, 0}, errTooLarge},
		"no random":            {records(body(3, 3, 0), 99), errShort},
		"session ID":           {records(body(append(fixed, 33)...), 99), errSessionID},
		"long session ID":      {records(body(append(append(fixed, 33), make([]byte, 50)...)...), 99), errSessionID},
		"odd suites":           {records(body(append(fixed, 0, 0, 3, 1, 2, 3, 1, 0)...), 99), errSuites},
		"no suites":            {records(body(append(fixed, 0, 0, 0, 1, 0)...), 99), errSuites},
		"no compression":       {records(body(append(fixed, 0, 0, 2, 1, 2, 0)...), 99), errCompression},
		"extensions cut":       {records(body(append(fixed, 0, 0, 2, 1, 2, 1, 0, 0)...), 99), errShort},
		"extensions too long":  {records(body(append(fixed, 0, 0, 2, 1, 2, 1, 0, 0, 1)...), 99), errShort},
		"trailing bytes":       {records(body(append(fixed, 0, 0, 2, 1, 2, 1, 0, 0, 0, 9)...), 99), errTrailing},
		"extension cut":        {one([]byte{0, 0, 0}), errExtension},
		"extension of a byte":  {one([]byte{0}), errExtension},
		"extension too long":   {one([]byte{0, 77, 0, 1}), errExtension},
		"twice":                {one(ext(77), ext(77)), errDuplicate},
		"low type twice":       {one(ext(23), ext(23)), errDuplicate},
		"too many":             {one(many...), errExtensions},
		"PSK first":            {one(ext(extPreSharedKey), ext(77)), errPSKNotLast},
		"empty server_name":    {one(ext(extServerName)), errServerName},
		"no name":              {one(ext(extServerName, 0, 0)), errServerName},
		"empty name":           {one(name("")), errServerName},
		"name cut":             {one(ext(extServerName, 0, 4, 0, 0, 9, 'a')), errServerName},
		"bytes after names":    {one(ext(extServerName, 0, 4, 0, 0, 1, 'a', 'b')), errServerName},
		"two names":            {one(ext(extServerName, 0, 8, 0, 0, 1, 'a', 0, 0, 1, 'b')), errServerName},
		"dot at the end":       {one(name("a.example.")), errHostName},
		"NUL in the name":      {one(name("a\x00.example")), errHostName},
		"space":                {one(name("a b")), errHostName},
		"beyond ASCII":         {one(name("b\xfccher.example")), errHostName},
		"long name":            {one(name(strings.Repeat("a", 256))), errHostName},
		"empty ALPN":           {one(ext(extALPN, 0, 0)), errALPN},
		"empty protocol":       {one(alpn("")), errALPN},
		"protocol cut":         {one(ext(extALPN, 0, 2, 2, 'h')), errALPN},
		"no versions":          {one(ext(extSupportedVersions, 0)), errVersions},
		"odd versions":         {one(ext(extSupportedVersions, 3, 3, 4, 3)), errVersions},
		"bytes after versions": {one(ext(extSupportedVersions, 2, 3, 4, 3)), errVersions},
		"odd groups":           {one(ext(extSupportedGroups, 0, 1, 0)), errGroups},
		"no signatures":        {one(ext(extSignatures, 0, 0)), errSignatures},
		"no point formats":     {one(ext(extPointFormats, 0)), errPoints},
		"bytes after formats":  {one(ext(extPointFormats, 1, 0, 0)), errPoints},
	} {
		var p Peeker
		h, err := p.Parse(tc.b)
		if err != error(tc.want) || h != nil {
			t.Errorf("%s: %v, want %v", what, err, tc.want)
			continue
		}
		if !errors.Is(err, tc.want.Kind) || !strings.Contains(err.Error(), tc.want.What) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := AlertUnrecognizedName.Append(nil); !bytes.Equal(got, []byte{21, 3, 3, 0, 2, 2, 112}) {
		t.Errorf("alert %x", got)
	}
}

func TestALimitHolds(t *testing.T) {
	long := message([]uint16{1}, ext(77, make([]byte, 9000)...))
	for _, size := range []int{1, 100, 1 << 14} {
		b := records(long, size)
		for _, limit := range []int{len(b) - 1, len(b)} {
			p := Peeker{Limit: limit}
			var err error
			n := 0
			for ; n < len(b); n++ {
				if _, err = p.Parse(b[:n]); err != ErrIncomplete {
					break
				}
			}
			if limit == len(b) {
				if err != ErrIncomplete {
					t.Fatalf("records of %d: after %d bytes: %v", size, n, err)
				}
				if _, err = p.Parse(b); err != nil {
					t.Errorf("records of %d: %v", size, err)
				}
			} else if err != error(errTooLarge) {
				t.Errorf("records of %d, limit %d of %d: %v after %d", size, limit, len(b), err, n)
			}
			if cap(p.msg) > 4*limit {
				t.Errorf("%d bytes of memory for a limit of %d", cap(p.msg), limit)
			}
		}
	}
	// A record that exceeds it is refused by its header.
	if _, err := (&Peeker{Limit: 1000}).Parse([]byte{22, 3, 1, 3, 0xe9}); err != error(errTooLarge) {
		t.Error("a record above the limit:", err)
	}
	// A reader that never completes is cut off at the limit, whatever it sends.
	endless := io.MultiReader(bytes.NewReader([]byte{22, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xfb}), iotest.OneByteReader(neverEnds{}))
	var p Peeker
	if _, err := p.Read(endless); !errors.Is(err, ErrTooLarge) || len(p.Buffered()) > DefaultLimit {
		t.Errorf("%v after %d bytes", err, len(p.Buffered()))
	}
}

// neverEnds is a reader of zeros.
type neverEnds struct{}

func (neverEnds) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestReadKeepsWhatItRead(t *testing.T) {
	sent := append(stream(t, chromeConfig), "more"...)
	for what, r := range map[string]io.Reader{
		"at once":      bytes.NewReader(sent),
		"byte by byte": iotest.OneByteReader(bytes.NewReader(sent)),
		"with the end": iotest.DataErrReader(bytes.NewReader(sent)),
	} {
		var p Peeker
		h, err := p.Read(r)
		if err != nil || string(h.ServerName) != "www.example.com" {
			t.Fatalf("%s: %v", what, err)
		}
		server, client := net.Pipe()
		go func() { _, _ = client.Write([]byte(" and more")); client.Close() }()
		rest, _ := io.ReadAll(r)
		all, err := io.ReadAll(iotest.OneByteReader(NewConn(server, append(p.Buffered(), rest...))))
		if err != nil || string(all) != string(sent)+" and more" {
			t.Errorf("%s: %d bytes, want %d: %v", what, len(all), len(sent), err)
		}
	}
	var p Peeker
	if _, err := p.Read(bytes.NewReader(sent[:100])); err != io.ErrUnexpectedEOF {
		t.Error("cut:", err)
	}
	p.Reset()
	if _, err := p.Read(bytes.NewReader(nil)); err != io.EOF {
		t.Error("empty:", err)
	}
	p.Reset()
	if _, err := p.Read(strings.NewReader("SSH-2.0-OpenSSH_9.2\r\n")); !errors.Is(err, ErrNotTLS) || string(p.Buffered()) != "SSH-2.0-OpenSSH_9.2\r\n" {
		t.Errorf("SSH: %v, %q", err, p.Buffered())
	}
}

func TestPeekingAllocatesNothing(t *testing.T) {
	whole := stream(t, chromeConfig)
	pieces := records(whole[recordHeader:], 300)
	var p Peeker
	var out [40]byte
	for what, b := range map[string][]byte{"one record": whole, "records": pieces} {
		n := testing.AllocsPerRun(100, func() {
			p.Reset()
			for cut := 500; cut < len(b); cut += 500 {
				_, _ = p.Parse(b[:cut])
			}
			h, err := p.Parse(b)
			if err != nil {
				t.Fatal(err)
			}
			h.AppendJA4(out[:0], 't')
			h.AppendJA3(out[:0])
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
	garbage := []byte("GET / HTTP/1.1")
	if n := testing.AllocsPerRun(100, func() { p.Reset(); _, _ = p.Parse(garbage) }); n != 0 {
		t.Errorf("garbage: %v allocations", n)
	}
}
