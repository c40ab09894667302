package inspect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/wire"
)

// What parsers hold of messages that are not complete counts, and is given back.
func TestParsersCountWhatTheyHold(t *testing.T) {
	const size = 4000
	many := strings.Repeat("x", size)
	for name, c := range map[string]struct {
		port           uint16
		client, server string
	}{
		"DNS":              {53, "\x13\x88\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01" + many, ""},
		"FTP":              {21, "USER " + many, "220 x\r\n"},
		"MQTT":             {1883, "\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01c\x30\xa8\x46\x00\x01t" + many, ""},
		"NFS":              {2049, "\x80\x00\x20\x00" + nfsCallOf(1, 3, 3, many), ""},
		"SIP":              {5060, "OPTIONS sip:a SIP/2.0\r\nTo: " + many, ""},
		"SMB frame":        {445, smbTree(`\\h\s`) + "\x00\x00\x20\x00" + many, ""},
		"SMB file":         {445, smbTree(`\\h\s`) + smbWrite("0123456789abcdef", 0, many), ""},
		"SMB being opened": {445, smbTree(`\\h\s`) + smbCreate(7, many), ""},
		"SMTP command":     {25, "EHLO a\r\nMAIL " + many, "220 x\r\n"},
		"SMTP message":     {25, "EHLO a\r\nDATA\r\n\r\n" + many + "\r\n", "220 x\r\n"},
		"TLS":              {443, "\x16\x03\x01\x20\x00\x01\x00\x1f\xfc\x03\x03" + many, ""},
		"HTTP":             {80, "POST / HTTP/1.1\r\nContent-Length: 8000\r\n\r\n" + many, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, `alert tcp any any -> any any (content:"nothing"; sid:1;)`)
			conn := l.tcp(c.port).open()
			conn.send(false, c.server, 1400).send(true, c.client, 1400)
			if f := l.e.oldest; f.proto == nil || f.held < size {
				t.Errorf("%d bytes are counted, of at least %d; a protocol was recognised: %v", f.held, size, f.proto != nil)
			}
			conn.close()
			if l.e.Flush(); l.e.budget.Used() != 0 {
				t.Errorf("%d bytes are counted at the end", l.e.budget.Used())
			}
		})
	}
}

// Bodies are held up to Config.BodyBytes, whatever protocol carries them.
func TestParsersHoldBodiesUpToTheBound(t *testing.T) {
	const bound = 1000
	many := strings.Repeat(strings.Repeat("x", 98)+"\r\n", 40*bound/100)
	for name, c := range map[string]struct {
		port           uint16
		client, server string
	}{
		"SMTP": {25, "EHLO a\r\nDATA\r\n\r\n" + many, "220 x\r\n"},
		"SMB":  {445, smbTree(`\\h\s`) + smbWrite("0123456789abcdef", 0, many), ""},
		"HTTP": {80, fmt.Sprintf("POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n", 2*len(many)) + many, ""},
	} {
		l := newLab(t, `alert tcp any any -> any any (content:"nothing"; sid:1;)`)
		l.e.Swap(l.e.rules, Config{BodyBytes: bound})
		l.tcp(c.port).open().send(false, c.server, 1400).send(true, c.client, 1400)
		if held := l.e.oldest.held; held > 8*bound {
			t.Errorf("%s: %d bytes are held of a body of %d", name, held, len(many))
		}
	}
}

// Bytes of a file that are written again, in the place of those that were searched, are searched, too.
func TestFilesAreSearchedWhereTheyChange(t *testing.T) {
	const id = "0123456789abcdef"
	g := newGate(t, Config{Refuse: true}, `drop smb any any -> any any (file.data; content:"evil"; sid:1;)`)
	g.open()
	seq := uint32(1)
	for i, part := range []string{smbCreate(1, "a"), smbWrite(id, 0, "e..l and more"), smbWrite(id, 1, "vi")} {
		r := g.segment(true, seq, wire.FlagACK, part)
		if want := i == 2; (r.Outcome == Drop) != want {
			t.Errorf("segment %d: %v", i, r.Outcome)
		}
		seq += uint32(len(part))
	}
}
