package control

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/gateway/config"
	"github.com/millrace/millrace/internal/testkit/testport"
	"github.com/millrace/millrace/l7/cache"
)

// diskRig is a gateway whose cache has a folder, in front of a backend that counts its requests.
type diskRig struct {
	t     *testing.T
	at    string
	dir   string
	src   string
	asked atomic.Int64
}

func newDiskRig(t *testing.T) *diskRig {
	r := &diskRig{t: t, at: testport.Hold(t).String(), dir: filepath.Join(t.TempDir(), "pages")}
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.asked.Add(1)
		w.Header().Set("Cache-Control", "max-age=1000")
		_, _ = io.WriteString(w, strings.Repeat(q.URL.Path, 20_000))
	}))
	t.Cleanup(back.Close)
	r.src = fmt.Sprintf(`
loops: 1
caches: [{name: pages, memory: 1048576, max_object: 1000, disk: {dir: %q, bytes: 16777216}}]
listeners: [{name: web, address: %q, protocol: HTTP}]
routes: [{name: r, rules: [{backend_refs: [{name: p}], cache: {name: pages}}]}]
pools: [{name: p, backends: [{name: a, address: %q}]}]
`, r.dir, r.at, back.Listener.Addr())
	return r
}

// run runs a gateway until the function that it returns is called.
func (r *diskRig) run(s *Set) (stop func()) {
	ended := make(chan error, 1)
	go func() { ended <- s.Run() }()
	return func() {
		s.Shutdown()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
	}
}

// get sends a request, and expects the backend to have got so many by then.
func (r *diskRig) get(path string, asked int64) {
	r.t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	w, err := c.Get("http://" + r.at + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil || string(body) != strings.Repeat(path, 20_000) || r.asked.Load() != asked {
		r.t.Errorf("%s: %d bytes, %v; %d requests, want %d", path, len(body), err, r.asked.Load(), asked)
	}
}

// loaded waits until the folder has been read and all is written.
func loaded(s *Set) {
	for _, c := range s.Caches() {
		for c.Disk().Stats().Loading {
			time.Sleep(time.Millisecond)
		}
		c.Sync()
	}
}

// What is in files is there after a restart, and another gateway does not get the folder meanwhile.
func TestCachesOnDiskOverARestart(t *testing.T) {
	r := newDiskRig(t)
	s := openSet(t, r.src, nil)
	stop := r.run(s)
	r.get("/a", 1)
	loaded(s)
	r.get("/a", 1)
	cfg, err := config.Parse("test.yaml", []byte(strings.Replace(r.src, r.at, testport.Hold(t).String(), 1)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(cfg, Options{Log: slog.New(slog.DiscardHandler)}); !errors.Is(err, cache.ErrDiskLocked) || !strings.Contains(err.Error(), "cache pages: disk: "+r.dir) {
		t.Errorf("a second gateway: %v", err)
	}
	stop()
	s = openSet(t, r.src, nil)
	defer r.run(s)()
	loaded(s)
	r.get("/a", 1)
	st := s.Caches().Status().Caches[0]
	if d := st.Disk; d == nil || d.Objects != 1 || d.Reads != 1 || d.Dir != r.dir || d.Limit != 16<<20 || st.Objects != 0 {
		t.Errorf("%+v, %+v", st, st.Disk)
	}
	list, err := s.Caches().Objects("pages", "http://", 10)
	if err != nil || len(list.Objects) != 1 || !list.Objects[0].Disk || list.Objects[0].Content != 40_000 {
		t.Errorf("%+v, %v", list, err)
	}
	if n, err := s.Caches().Purge("", "http://"+r.at+"/a", false); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if files, _ := filepath.Glob(filepath.Join(r.dir, "*", "*")); len(files) != 0 {
		t.Errorf("%q is left after a purge", files)
	}
	r.get("/a", 2)
}

// A reload that keeps the folder keeps what is in it; one that takes it away frees it, and one that fails changes nothing.
func TestCachesOnDiskOverReloads(t *testing.T) {
	r := newDiskRig(t)
	s := openSet(t, r.src, nil)
	defer r.run(s)()
	reload := func(src string) error {
		cfg, err := config.Parse("test.yaml", []byte("admin: {socket: \"\"}\n"+src))
		if err != nil {
			t.Fatal(err)
		}
		return s.Reload(cfg)
	}
	r.get("/a", 1)
	loaded(s)
	if err := reload(strings.Replace(r.src, "bytes: 16777216", "bytes: 33554432", 1)); err != nil {
		t.Fatal(err)
	}
	r.get("/a", 1)
	if d := s.Caches().Status().Caches[0].Disk; d.Limit != 32<<20 {
		t.Errorf("%+v", d)
	}
	other, err := cache.OpenDisk(cache.DiskOptions{Dir: r.dir + "2", Bytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	moved := strings.Replace(r.src, r.dir, r.dir+"2", 1)
	if err := reload(moved); !errors.Is(err, cache.ErrDiskLocked) {
		t.Errorf("%v", err)
	}
	r.get("/a", 1)
	if err := errors.Join(other.Close(), reload(moved)); err != nil {
		t.Fatal(err)
	}
	r.get("/a", 2)
	free, err := cache.OpenDisk(cache.DiskOptions{Dir: r.dir, Bytes: 16 << 20})
	if err != nil {
		t.Fatalf("the folder is not free: %v", err)
	}
	if err := errors.Join(free.Close(), reload(strings.Replace(r.src, fmt.Sprintf(", disk: {dir: %q, bytes: 16777216}", r.dir), "", 1))); err != nil {
		t.Fatal(err)
	}
	r.get("/a", 3)
	r.get("/a", 4) // it is too long for memory
}

// An upgrade hands the folder over with what is in it. One that fails leaves it to the old process.
func TestCachesOnDiskOverAnUpgrade(t *testing.T) {
	r := newDiskRig(t)
	old := openSet(t, r.src, nil)
	stop := r.run(old)
	r.get("/a", 1)
	HoldAccept(old, true, nil)
	HoldAccept(old, false, nil)
	r.get("/a", 1)
	in, err := Pass(old)
	if err != nil {
		t.Fatal(err)
	}
	next := openSet(t, r.src, in)
	HoldAccept(old, true, nil)
	Take(next)
	loaded(next)
	Give(old)
	stop()
	defer r.run(next)()
	r.get("/a", 1)
	r.get("/b", 2)
	loaded(next)
	r.get("/b", 2)
	if _, err := cache.OpenDisk(cache.DiskOptions{Dir: r.dir, Bytes: 16 << 20}); !errors.Is(err, cache.ErrDiskLocked) {
		t.Errorf("the folder is free: %v", err)
	}
}
