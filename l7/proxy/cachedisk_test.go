package proxy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/testkit/memtransport"
	"github.com/millrace/millrace/l7/cache"
)

// newDiskRig is a cachedRig with a second level, whose memory takes no more than 1000 bytes of a response.
func newDiskRig(t *testing.T) (*cachedRig, *cache.Disk) {
	t.Helper()
	d, err := cache.OpenDisk(cache.DiskOptions{Dir: filepath.Join(t.TempDir(), "d"), Bytes: 64 << 20, MaxObject: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	d.Start()
	t.Cleanup(func() { _ = d.Close() })
	r := newCachedRig(t, nil)
	r.use.Store.UseDisk(d)
	r.use.Policy.MaxObject, r.use.InMemory = 4<<20, 1000
	return r, d
}

// forget empties memory once all is written.
func (r *cachedRig) forget() {
	r.use.Store.Sync()
	for e := range r.use.Store.Cache.Each {
		r.use.Store.Cache.Remove(e)
	}
}

// settle runs the loop until done, and lets no time pass meanwhile.
func (r *cachedRig) settle(done func() bool) {
	r.t.Helper()
	for range 20_000 {
		if r.run(); done() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	r.t.Fatal("it has not come to an end")
}

// fetch sends a request over a connection of its own and waits for the response, which has a length.
func (r *cachedRig) fetch(path string, lines ...string) string {
	r.t.Helper()
	return r.await(r.begin(path, lines...))
}

func (r *cachedRig) begin(path string, lines ...string) *memtransport.Peer {
	c := r.connect(memHTTP1)
	c.Write([]byte(requestOf("GET", path, lines...)))
	r.run()
	return c
}

func (r *cachedRig) await(c *memtransport.Peer) string {
	text := ""
	r.settle(func() bool {
		text += string(c.Take())
		head, body, ok := strings.Cut(text, "\r\n\r\n")
		var n int
		_, _ = fmt.Sscan(headerOf(head, "content-length"), &n)
		return ok && (len(body) >= n || c.Ended)
	})
	c.Close()
	r.run()
	return text
}

// lettersOf is content of a length whose bytes differ.
func lettersOf(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a' + byte(i*7/5%26)
	}
	return string(b)
}

// damage changes a byte near the end of the content of each file.
func damage(t *testing.T, d *cache.Disk) {
	t.Helper()
	all, _ := filepath.Glob(filepath.Join(d.Dir(), "*", "*"))
	for _, name := range all {
		b, err := os.ReadFile(name)
		if err == nil {
			b[max(4096, len(b)-20)] ^= 1
			err = os.WriteFile(name, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A short response comes from its file once, and from memory afterwards.
func TestShortResponsesFromDisk(t *testing.T) {
	r, d := newDiskRig(t)
	r.numbered(cacheable, `ETag: "v"`)
	r.get("/")
	r.forget()
	got := r.fetch("/")
	if brief(got) != "200 1 hit" || headerOf(got, "etag") != `"v"` || len(r.seen) != 1 {
		t.Errorf("%q", got)
	}
	for range 2 {
		r.expect("from memory", r.get("/"), "200 1 hit", 1)
	}
	if n := d.Stats().Counts[cache.DiskReads]; n != 1 {
		t.Errorf("%d reads", n)
	}
	r.forget()
	if head := r.send("HEAD", "/"); !strings.HasPrefix(head, "HTTP/1.1 200") || headerOf(head, "content-length") != "1" || d.Stats().Counts[cache.DiskReads] != 1 {
		t.Errorf("HEAD: %q", head)
	}
	if got := r.fetch("/", `If-None-Match: "v"`); !strings.HasPrefix(got, "HTTP/1.1 304") {
		t.Errorf("%q", got)
	}
	r.nothingLeft()
}

// Requests for a response that is being read wait for it.
func TestOneReadForManyRequests(t *testing.T) {
	r, d := newDiskRig(t)
	r.numbered(cacheable)
	r.get("/")
	r.forget()
	var all []*memtransport.Peer
	for range 10 {
		all = append(all, r.begin("/"))
	}
	for _, c := range all {
		if got := brief(r.await(c)); got != "200 1 hit" && got != "200 1 fwd=uri-miss; collapsed" {
			t.Errorf("%q", got)
		}
	}
	if n := d.Stats().Counts[cache.DiskReads]; n != 1 || len(r.seen) != 1 {
		t.Errorf("%d reads, %d requests", n, len(r.seen))
	}
	r.nothingLeft()
}

// A response that is too long for memory is written while it is sent, and comes from its file in parts, whatever of it is asked for.
func TestLongResponsesFromDisk(t *testing.T) {
	for name, framing := range map[string]func(body string) string{
		"length": func(body string) string { return response(body, cacheable, `ETag: "v"`) },
		"chunks": func(body string) string {
			return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nETag: \"v\"\r\n" + cacheable + "\r\n\r\n" +
				fmt.Sprintf("%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", 900, body[:900], len(body)-900, body[900:])
		},
	} {
		r, _ := newDiskRig(t)
		body := lettersOf(300_000)
		r.reply = func(string) string { return framing(body) }
		c := r.begin("/")
		text := ""
		r.settle(func() bool { text += string(c.Take()); return len(text) > len(body) })
		if !strings.Contains(text, "; stored") {
			t.Errorf("%s: %.300q", name, text)
		}
		c.Close()
		r.run()
		r.use.Store.Sync()
		if r.use.Store.Cache.Stats().Objects != 0 {
			t.Errorf("%s: it is in memory", name)
		}
		if got := r.fetch("/"); brief(got) != "200 "+body+" hit" {
			t.Errorf("%s: %.200q: %d bytes", name, got, len(got))
		}
		if got := r.fetch("/", "Range: bytes=70000-139999"); brief(got) != "206 "+body[70_000:140_000]+" hit" {
			t.Errorf("%s: %.200q: %d bytes", name, got, len(got))
		}
		if got := r.fetch("/", "Range: bytes=300000-"); !strings.HasPrefix(got, "HTTP/1.1 416") {
			t.Errorf("%s: %.200q", name, got)
		}
		if got := r.fetch("/", `If-None-Match: "v"`); !strings.HasPrefix(got, "HTTP/1.1 304") || len(r.seen) != 1 {
			t.Errorf("%s: %.200q, %d requests", name, got, len(r.seen))
		}
		r.nothingLeft()
	}
}

// A stale one is validated, and its file stays.
func TestValidationOfLongResponses(t *testing.T) {
	r, d := newDiskRig(t)
	body := lettersOf(200_000)
	r.reply = func(head string) string {
		if headerOf(head, "if-none-match") == `"v"` {
			return "HTTP/1.1 304 N\r\nCache-Control: max-age=60\r\nETag: \"v\"\r\n\r\n"
		}
		return response(body, "Cache-Control: max-age=5, stale-if-error=100", `ETag: "v"`)
	}
	r.fetch("/")
	r.use.Store.Sync()
	r.now = r.now.Add(6 * time.Second)
	was := r.reply
	r.reply = func(string) string { return "|" }
	if got := r.fetch("/"); brief(got) != "200 "+body+" hit" {
		t.Errorf("in place of an error: %.300q", got)
	}
	r.reply = was
	seen := len(r.seen)
	if got := r.fetch("/"); brief(got) != "200 "+body+" fwd=stale; fwd-status=304" || len(r.seen) != seen+1 {
		t.Errorf("%.300q", got)
	}
	r.now = r.now.Add(30 * time.Second)
	if got := r.fetch("/"); brief(got) != "200 "+body+" hit" || len(r.seen) != seen+1 || d.Stats().Counts[cache.DiskWritten] != 1 {
		t.Errorf("fresh again: %.300q; %+v", got, d.Stats())
	}
	r.nothingLeft()
}

// A stale one of the disk is validated in the background like others.
func TestBackgroundValidationFromDisk(t *testing.T) {
	for name, n := range map[string]int{"short": 10, "long": 5000} {
		r, _ := newDiskRig(t)
		body := lettersOf(n)
		r.reply = func(head string) string {
			if headerOf(head, "if-none-match") == `"v"` {
				return "HTTP/1.1 304 N\r\nCache-Control: max-age=60\r\nETag: \"v\"\r\n\r\n"
			}
			return response(body, "Cache-Control: max-age=5, stale-while-revalidate=100", `ETag: "v"`)
		}
		r.fetch("/")
		r.forget()
		r.now = r.now.Add(6 * time.Second)
		if got := r.fetch("/"); brief(got) != "200 "+body+" hit" {
			t.Errorf("%s: %.300q", name, got)
		}
		r.settle(func() bool { return len(r.seen) == 2 })
		r.now = r.now.Add(30 * time.Second)
		if got := r.fetch("/"); brief(got) != "200 "+body+" hit" || len(r.seen) != 2 {
			t.Errorf("%s: fresh again: %.300q", name, got)
		}
		r.nothingLeft()
	}
}

// A damaged file is a miss where the response has not begun, and the end of it where it has.
func TestDamagedFilesAreMisses(t *testing.T) {
	r, d := newDiskRig(t)
	r.numbered(cacheable)
	r.get("/")
	r.use.Store.Sync()
	damage(t, d)
	r.forget()
	if got := r.fetch("/"); brief(got) != "200 2 fwd=uri-miss; stored" || len(r.seen) != 2 {
		t.Errorf("short: %q", got)
	}
	body := lettersOf(200_000)
	r.reply = func(string) string { return response(body, cacheable) }
	r.fetch("/long")
	r.forget()
	damage(t, d)
	c := r.begin("/long")
	text := ""
	r.settle(func() bool { text += string(c.Take()); return c.Ended })
	if _, got, _ := strings.Cut(text, "\r\n\r\n"); len(got) == 0 || !strings.HasPrefix(body, got) || len(got) == len(body) {
		t.Errorf("%d bytes", len(got))
	}
	c.Close()
	r.run()
	if got := r.fetch("/long"); brief(got) != "200 "+body+" fwd=uri-miss; stored" {
		t.Errorf("again: %.300q", got)
	}
	if st := d.Stats(); st.Counts[cache.DiskDamaged] != 2 {
		t.Errorf("%+v", st)
	}
	r.nothingLeft()
}

// A disk that hangs holds up no loop, and a request for a bounded time: then the backend is asked. The request may also end meanwhile.
func TestADiskThatHangs(t *testing.T) {
	r, _ := newDiskRig(t)
	r.numbered(cacheable)
	r.get("/")
	r.forget()
	for range cap(waiters) { // as many reads as may wait for disks
		waiters <- struct{}{}
	}
	free := sync.OnceFunc(func() {
		for range cap(waiters) {
			<-waiters
		}
	})
	defer free()
	one, two := r.begin("/"), r.begin("/", "Cache-Control: max-age=1000")
	three := r.begin("/", "Cache-Control: max-age=1000")
	three.Close()
	r.run()
	if other := r.get("/other"); brief(other) != "200 2 fwd=uri-miss; stored" {
		t.Errorf("another request: %q", other)
	}
	if got := string(one.Take()) + string(two.Take()); got != "" {
		t.Errorf("%q", got)
	}
	r.pass(diskWait + time.Second)
	for _, c := range []*memtransport.Peer{one, two} {
		if got := string(c.Take()); !strings.HasPrefix(got, "HTTP/1.1 200") {
			t.Errorf("after the wait: %q", got)
		}
	}
	if len(r.seen) < 3 {
		t.Errorf("%d requests", len(r.seen))
	}
	free()
	r.settle(func() bool { return r.worker.diskReads == 0 })
	r.nothingLeft(one, two)
}

// A client that leaves while its response is read from disk leaves nothing behind, and one that reads nothing holds one descriptor.
func TestClientsThatLeaveTheDisk(t *testing.T) {
	r, d := newDiskRig(t)
	body := lettersOf(2 << 20)
	r.reply = func(string) string { return response(body, cacheable) }
	r.fetch("/")
	r.use.Store.Sync()
	c := r.connect(memHTTP1)
	c.Window = 1000
	c.Write([]byte(requestOf("GET", "/")))
	r.settle(func() bool { return len(c.Take()) > 0 })
	c.Close()
	r.settle(func() bool { return r.worker.Stats().Active == 0 })
	if got := r.fetch("/"); brief(got) != "200 "+body+" hit" {
		t.Errorf("%.300q", got)
	}
	r.nothingLeft()
	if err := errors.Join(d.Close()); err != nil {
		t.Error(err)
	}
}

// A response that is cut short is not stored.
func TestLongResponsesThatAreCutShort(t *testing.T) {
	r, d := newDiskRig(t)
	body := lettersOf(200_000)
	r.reply = func(string) string { return response(body, cacheable)[:100_000] + "|" }
	c := r.begin("/")
	r.settle(func() bool { c.Take(); return c.Ended })
	c.Close()
	r.run()
	r.use.Store.Sync()
	if st := d.Stats(); st.Objects != 0 {
		t.Errorf("%+v", st)
	}
	r.nothingLeft()
}
