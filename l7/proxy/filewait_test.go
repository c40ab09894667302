package proxy

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	h2 "golang.org/x/net/http2"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/files"
)

// places is a budget of open files.
type places struct {
	most int64
	open atomic.Int64
}

func (p *places) TakeFile() bool {
	if p.open.Add(1) <= p.most {
		return true
	}
	p.open.Add(-1)
	return false
}

func (p *places) ReturnFile() { p.open.Add(-1) }

// budgetRig serves a folder of large files, of which few may be open, and the small file s.
func budgetRig(t *testing.T, most int64) (*rig, *places) {
	root, p := t.TempDir(), &places{most: most}
	for _, name := range []string{"a", "b", "c", "d"} {
		must(t, os.WriteFile(filepath.Join(root, name), fileContent(3<<20), 0o600))
	}
	must(t, os.WriteFile(filepath.Join(root, "s"), []byte("small"), 0o600))
	site, err := files.Open(files.Options{Root: root, Budget: p})
	must(t, err)
	return newRig(t, "127.0.0.1:1", func(r *rig) { r.rule.Files, r.rule.Backends = site, nil }), p
}

// get sends a request for a file.
func (f *frames) get(id uint32, path string) {
	f.t.Helper()
	must(f.t, f.WriteHeaders(h2.HeadersFrameParam{
		StreamID: id, EndHeaders: true, EndStream: true,
		BlockFragment: block(":method", "GET", ":scheme", "http", ":authority", "a", ":path", path),
	}))
}

// got returns the status of the response on a stream.
func (f *frames) got(id uint32) string {
	f.t.Helper()
	return f.status(f.until(h2.FrameHeaders, id).(*h2.HeadersFrame))
}

// waiting waits until so many requests wait for the descriptor of a file.
func (r *rig) waiting(n int) {
	r.t.Helper()
	r.eventually(fmt.Sprint(n, " requests to wait"), func() bool { return len(r.worker.fileWaits) == n })
}

// Requests for files that are not open yet wait in order for a descriptor, until others end or the time to wait is over.
func TestRequestsWaitForFiles(t *testing.T) {
	r, p := budgetRig(t, 2)
	f := r.dialFrames(h2.Setting{ID: h2.SettingInitialWindowSize, Val: 0})
	for i := range uint32(40) { // all of one file, but the last
		path := "/a"
		if i == 39 {
			path = "/b"
		}
		f.get(2*i+1, path)
		if s := f.got(2*i + 1); s != "200" {
			t.Fatalf("%s: %s", path, s)
		}
	}
	if n := p.open.Load(); n != 2 {
		t.Errorf("%d descriptors for two files", n)
	}
	f.get(81, "/c")
	r.waiting(1)
	f.get(83, "/d")
	r.waiting(2)
	if b := fetch(t, r.client(false), "http://"+r.addr+"/a"); !bytes.Equal(b, fileContent(3<<20)) {
		t.Errorf("%d bytes of a file that is open", len(b))
	}
	resp, err := r.client(false).Head("http://" + r.addr + "/c")
	must(t, err)
	if resp.Body.Close(); resp.StatusCode != http.StatusOK {
		t.Errorf("HEAD: %d", resp.StatusCode)
	}
	must(t, f.WriteRSTStream(79, h2.ErrCodeCancel))
	if s := f.got(81); s != "200" {
		t.Errorf("the first that waits, after a descriptor is free: %s", s)
	}
	f.get(85, "/s")
	r.waiting(2)
	must(t, f.WriteRSTStream(85, h2.ErrCodeCancel))
	r.waiting(1)
	r.do(func() { r.worker.fileWaits[0].since -= clock.Time(DefaultWait) })
	if s := f.got(83); s != "503" {
		t.Errorf("after the time that requests wait: %s", s)
	}
	f.conn.Close()
	r.settled()
	r.eventually("the files to be closed", func() bool { return p.open.Load() == 0 })
	if b := fetch(t, r.client(false), "http://"+r.addr+"/s"); string(b) != "small" {
		t.Errorf("%q", b)
	}
}

// As many wait as may, and one that comes while others wait is not served before them.
func TestTheQueueForFilesIsBounded(t *testing.T) {
	r, p := budgetRig(t, 0)
	f := r.dialFrames()
	r.do(func() {
		for range filePending - 1 {
			r.worker.fileWaits = append(r.worker.fileWaits, &local{w: r.worker, x: &exchange{phase: received}, since: r.worker.Now, waits: true})
		}
		r.worker.filesAt = r.worker.Now.Add(patience)
	})
	f.get(1, "/s")
	r.waiting(filePending)
	p.most = 1
	f.get(3, "/s")
	if s := f.got(3); s != "503" {
		t.Errorf("beyond the bound: %s", s)
	}
	r.do(func() { r.worker.fileWaits, r.worker.filesAt = r.worker.fileWaits[filePending-1:], 0 })
	if s := f.got(1); s != "200" {
		t.Errorf("when its time has come: %s", s)
	}
}
