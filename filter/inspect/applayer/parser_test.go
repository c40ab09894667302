package applayer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/filter/signature"
)

// recorder is a Host that keeps what a parser reports, as text.
type recorder struct {
	c       Context
	message Message
	reports []string
	files   []*recordedFile
	secured strings.Builder
}

// recordedFile is a file whose bytes are reported at its end: how they were cut does not matter.
type recordedFile struct {
	r    *recorder
	name string
	body [2][]byte
}

func newRecorder() *recorder {
	r := &recorder{}
	r.c = Context{
		Host: r, Message: &r.message, Transfers: &Transfers{}, Src: netip.MustParseAddr("::ffff:192.0.2.1"), Dst: netip.MustParseAddr("::ffff:192.0.2.2"), Limit: 1 << 10,
	}
	return r
}

func (r *recorder) report(f string, a ...any) { r.reports = append(r.reports, fmt.Sprintf(f, a...)) }

// Inspect implements Host.
func (r *recorder) Inspect(d signature.Direction) {
	slices.Sort(r.message.Used)
	for _, b := range r.message.Used {
		r.report("%d: %d %q", d, b, r.message.Buffers[b])
	}
}

// NewFile implements Host.
func (r *recorder) NewFile() File {
	f := &recordedFile{r: r}
	r.files = append(r.files, f)
	return f
}

// Secure implements Host.
func (r *recorder) Secure(b []byte) { r.secured.Write(b) }

// GiveUp implements Host.
func (r *recorder) GiveUp() { r.report("given up") }

// Describe implements File.
func (f *recordedFile) Describe(name, _ []byte) { f.name = string(name) }

// Write implements File.
func (f *recordedFile) Write(d signature.Direction, b []byte) {
	f.WriteAt(d, uint64(len(f.body[d-1])), b)
}

// WriteAt implements File.
func (f *recordedFile) WriteAt(d signature.Direction, at uint64, b []byte) {
	most := uint64(f.r.c.Limit)
	if at >= most {
		return
	}
	b = b[:min(len(b), int(most-at))]
	body := &f.body[d-1]
	*body = append(*body, make([]byte, max(0, int(at)+len(b)-len(*body)))...)
	copy((*body)[at:], b)
}

// End implements File.
func (f *recordedFile) End(d signature.Direction) {
	f.r.report("%d: file %q: %q", d, f.name, f.body[d-1])
	f.body[d-1] = nil
}

// Size implements File.
func (f *recordedFile) Size() int { return len(f.body[0]) + len(f.body[1]) }

// streams are the protocols of streams, each with a conversation: what the client sends, and the server.
var streams = []struct {
	app            signature.App
	client, server string
	reports        int // at least
}{
	{signature.AppSSH, "SSH-2.0-a b\r\n", "SSH-2.0-OpenSSH_9 x\r\n", 4},
	{signature.AppDNS, "\x00\x13\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01", "", 1},
	{signature.AppSMTP, "EHLO a\r\nMAIL FROM:<a@b>\r\nDATA\r\nSubject: x\r\n\r\nbody\r\n.\r\nQUIT\r\n", "220 x\r\n250 y\r\n", 3},
	{signature.AppFTP, "USER a\r\nRETR f\r\n", "220 x\r\n227 Entering (192,0,2,9,4,1)\r\n", 4},
	{signature.AppSIP, "OPTIONS sip:a SIP/2.0\r\nTo: b\r\nl: 2\r\n\r\nxx\r\n", "SIP/2.0 200 OK\r\n\r\n", 8},
	{signature.AppMQTT, "\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01c\x30\x04\x00\x01th", "\x20\x02\x00\x00", 9},
	{signature.AppNFS, "\x80\x00\x00\x30\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x01\x86\xa3\x00\x00\x00\x03\x00\x00\x00\x03" + strings.Repeat("\x00", 16) +
		"\x00\x00\x00\x00\x00\x00\x00\x01a", "", 2},
	{signature.AppSMB, "\x00\x00\x00\x04junk\x00\x00\x00\x40\xfeSMB" + strings.Repeat("\x00", 60), "", 0},
	{signature.AppTLS, "\x16\x03\x01\x00\x04\x01\x00\x00\x00\x15\x03\x01\x00\x02\x02\x32", "\x16\x03\x03\x00\x04\x0e\x00\x00\x00", 0},
}

// parsed returns what a parser reports of a conversation in segments of a size, the client's bytes first.
func parsed(app signature.App, client, server string, size int) *recorder {
	r, p := newRecorder(), New(app)
	for i, text := range [2]string{client, server} {
		r.c.Dir = signature.DirectionOf(i)
		for b := []byte(text); len(b) > 0 && r.secured.Len() == 0; {
			n := min(size, len(b))
			p.Parse(&r.c, b[:n:n])
			b = b[n:]
		}
	}
	p.Finish(&r.c)
	p.Close(&r.c)
	return r
}

// TestParsersInAnySegmentation wants the same messages however a conversation is cut.
func TestParsersInAnySegmentation(t *testing.T) {
	for _, s := range streams {
		want := parsed(s.app, s.client, s.server, 1<<20).reports
		if len(want) < s.reports {
			t.Errorf("protocol %d: %d reports %q, want %d at least", s.app, len(want), want, s.reports)
		}
		for size := 1; size < 20; size++ {
			if got := parsed(s.app, s.client, s.server, size).reports; !slices.Equal(got, want) {
				t.Errorf("protocol %d in segments of %d: %q, want %q", s.app, size, got, want)
			}
		}
	}
}

// FuzzParsers gives parsers any bytes in two segmentations, and wants the same reports, without a panic and within bounds.
func FuzzParsers(f *testing.F) {
	for i, s := range streams {
		f.Add(uint8(i), s.client, s.server, uint8(7))
	}
	f.Fuzz(func(t *testing.T, which uint8, client, server string, size uint8) {
		app := streams[int(which)%len(streams)].app
		want := parsed(app, client, server, 1<<20)
		got := parsed(app, client, server, 1+int(size))
		if want.secured.Len() == 0 && !slices.Equal(got.reports, want.reports) {
			t.Errorf("protocol %d in segments of %d: %q, want %q", app, 1+int(size), got.reports, want.reports)
		}
	})
}

// TestTransfersAreTakenOnce has a data connection that is announced, opened, and opened again.
func TestTransfersAreTakenOnce(t *testing.T) {
	r, p := newRecorder(), New(signature.AppFTP)
	r.c.Dir, r.c.Src, r.c.Dst = signature.ToClient, r.c.Dst, r.c.Src
	p.Parse(&r.c, []byte("227 Entering Passive Mode (192,0,2,2,4,1)\r\n"))
	if n := r.c.Transfers.Len(); n != 1 {
		t.Fatalf("%d data connections are expected", n)
	}
	client, server := r.c.Dst, r.c.Src
	if r.c.Transfers.Take(client, server, 1026) != nil || r.c.Transfers.Take(server, client, 1025) != nil {
		t.Error("another connection is taken for that of the transfer")
	}
	if r.c.Transfers.Take(client, server, 1025) == nil || r.c.Transfers.Take(client, server, 1025) != nil {
		t.Error("the connection is not taken once")
	}
	p.Parse(&r.c, []byte("229 Entering (|||1026|)\r\n"))
	if p.Close(&r.c); r.c.Transfers.Len() != 0 {
		t.Error("a data connection is expected after its control connection has ended")
	}
}
