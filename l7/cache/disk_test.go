package cache

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/l7/files"
	"github.com/millrace/millrace/semantics"
)

// diskRig is a cache of two levels, with a clock of the test.
type diskRig struct {
	*Named
	t   *testing.T
	o   DiskOptions
	now time.Time
	log bytes.Buffer
}

func newDiskRig(t *testing.T, change func(o *DiskOptions)) *diskRig {
	r := &diskRig{t: t, now: start}
	r.o = DiskOptions{Dir: filepath.Join(t.TempDir(), "d"), Bytes: 64 << 20, MaxObject: 8 << 20, Now: func() time.Time { return r.now }}
	r.o.Log = slog.New(slog.NewTextHandler(&r.log, nil))
	if change != nil {
		change(&r.o)
	}
	r.open()
	t.Cleanup(func() { _ = r.Disk().Close() })
	return r
}

// open begins anew with an empty memory.
func (r *diskRig) open() {
	r.t.Helper()
	d, err := OpenDisk(r.o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Named = NewNamed("n", Options{Memory: 1 << 24}, 1, func() time.Time { return r.now })
	r.UseDisk(d)
	d.Start()
	d.loads.Wait()
}

// restart closes the folder and opens it again.
func (r *diskRig) restart() {
	r.t.Helper()
	if err := r.Disk().Close(); err != nil {
		r.t.Fatal(err)
	}
	r.open()
}

// forget empties memory.
func (r *diskRig) forget() {
	for e := range r.Cache.Each {
		r.Cache.Remove(e)
	}
}

// put stores a response and has it written.
func (r *diskRig) put(e *Entry) {
	r.t.Helper()
	if o := r.Put(e, r.Mark(e.URL)); o != Landed {
		r.t.Fatalf("%s: %v", e.URL, o)
	}
	r.Sync()
}

// content returns the content of what is stored for a URL, "-" for nothing, and "!" for what cannot be read.
func (r *diskRig) content(url string, fields ...semantics.Field) string {
	e, _ := r.Lookup(Key{URL: url}, fields)
	switch {
	case e == nil:
		return "-"
	case !e.OnDisk():
		return string(e.Body)
	}
	c, err := r.OpenContent(e)
	if err != nil {
		return "!"
	}
	defer c.Close()
	body, err := c.All()
	if err != nil {
		return "!"
	}
	return string(body)
}

// files returns the names of the files, without the lock.
func (r *diskRig) files() (names []string) {
	all, _ := filepath.Glob(filepath.Join(r.o.Dir, "*", "*"))
	hidden, _ := filepath.Glob(filepath.Join(r.o.Dir, "*", ".*"))
	return append(all, hidden...)
}

func (r *diskRig) count(c DiskCount) uint64 { return r.Disk().Stats().Counts[c] }

// withBody is an entry with a content.
func withBody(url, body string, vary ...semantics.Field) *Entry {
	e := entryOf(url, "", 0, vary...)
	e.Body = []byte(body)
	return e
}

// long is content of a length.
func long(n int) string {
	b := make([]byte, n)
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return string(b)
}

func TestDiskKeepsResponsesOverARestart(t *testing.T) {
	r := newDiskRig(t, nil)
	stored := map[string]*Entry{}
	for i, n := range []int{0, 1, 100, sumBlock - 1, sumBlock, sumBlock + 1, 3*sumBlock + 5} {
		e := withBody(fmt.Sprintf("http://a.example/%d", i), long(n))
		e.Fields = append(e.Fields, semantics.Field{Name: "x-a", Value: strings.Repeat("v", 10*i)})
		stored[e.URL] = e
		r.put(e)
	}
	one := withBody("http://v.example/", "1", lines("foo", "1")...)
	r.put(one)
	r.put(withBody("http://v.example/", "2", lines("foo", "2")...))
	r.restart()
	if n := r.Disk().Stats().Objects; n != 9 || len(r.files()) != 9 {
		t.Errorf("%d objects, %d files", n, len(r.files()))
	}
	for url, want := range stored {
		got, _ := r.Lookup(Key{URL: url}, nil)
		if got == nil || !got.OnDisk() || got.Length() != int64(len(want.Body)) || r.content(url) != string(want.Body) {
			t.Fatalf("%s: %+v", url, got)
		}
		if diff := cmp.Diff(describe(want), describe(got)); diff != "" {
			t.Errorf("%s: %s", url, diff)
		}
	}
	if a, b, c := r.content("http://v.example/", lines("foo", "1")...), r.content("http://v.example/", lines("foo", "2")...), r.content("http://v.example/", lines("foo", "3")...); a != "1" || b != "2" || c != "-" {
		t.Errorf("%q, %q, %q", a, b, c)
	}
	if _, miss := r.Lookup(Key{URL: "http://v.example/"}, lines("foo", "3")); miss != VariantMiss {
		t.Errorf("%v", miss)
	}
}

// describe returns what a file has of an entry.
func describe(e *Entry) []any {
	return []any{
		e.Key, e.Status, e.Fields, e.vary, e.tag, e.modified, e.generated.Unix(), e.arrived.UnixNano(), e.initial, e.lifetime, e.staleRevalidate, e.staleError,
		e.stale, e.explicit, e.always,
	}
}

// All that describes a response is in its file.
func TestDescriptions(t *testing.T) {
	e := entryOf("http://a.example/", "rule\nx", 0, lines("foo", "1")...)
	e.tag, e.modified, e.initial, e.staleRevalidate, e.staleError = `"t"`, start.Add(-time.Hour), 5*time.Second, time.Minute, time.Hour
	e.Fields = append(e.Fields, semantics.Field{Name: "etag", Value: `"t"`})
	for _, s := range []staleness{byAnyone, byResponse, never} {
		for _, b := range []bool{false, true} {
			e.stale, e.explicit, e.always = s, b, !b
			meta := e.appendMeta(nil)
			got, err := parseMeta(meta)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(describe(e), describe(got)); diff != "" {
				t.Error(diff)
			}
			for n := range meta {
				if _, err := parseMeta(meta[:n]); err == nil {
					t.Fatalf("%d of %d bytes are a description", n, len(meta))
				}
			}
			if _, err := parseMeta(append(meta, 0)); err == nil {
				t.Error("a byte more")
			}
		}
	}
}

// Whatever a crash or a disk has made of a file, no response has other content: it is dropped when the folder is read, or when it is read.
func TestDamagedFiles(t *testing.T) {
	body := long(2*sumBlock + 77)
	damage := map[string]func(b []byte) []byte{"empty": func([]byte) []byte { return nil }}
	for _, at := range []int{0, 8, 12, 16, 24, 28, 40, 4096, 4096 + sumBlock, 4096 + len(body) - 1, 4096 + len(body), 4096 + len(body) + 11} {
		damage[fmt.Sprint("a bit at ", at)] = func(b []byte) []byte { b[at] ^= 4; return b }
		damage[fmt.Sprint("cut at ", at)] = func(b []byte) []byte { return b[:at] }
		damage[fmt.Sprint("zeros from ", at)] = func(b []byte) []byte { clear(b[at:]); return b }
	}
	damage["a byte more"] = func(b []byte) []byte { return append(b, 0) }
	r := newDiskRig(t, nil)
	for name, change := range damage {
		url := "http://a.example/" + name
		r.put(withBody(url, body))
		file := r.files()[0]
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, change(bytes.Clone(b)), 0o600); err != nil {
			t.Fatal(err)
		}
		r.forget()
		switch got := r.content(url); got {
		case "!":
			if got = r.content(url); got != "-" {
				t.Errorf("%s: it is still there: %.9q", name, got)
			}
		case body: // nothing but the description is damaged, which is in memory
		default:
			t.Errorf("%s: without a restart: %d bytes %.9q", name, len(got), got)
		}
		r.Purge("")
		if left := r.files(); len(left) != 0 {
			t.Fatalf("%s: %q is left", name, left)
		}
		r.put(withBody(url, body))
		if err := os.WriteFile(r.files()[0], change(bytes.Clone(b)), 0o600); err != nil {
			t.Fatal(err)
		}
		r.restart()
		if got := r.content(url); got == body || len(got) > 1 {
			t.Errorf("%s: after a restart: %.9q", name, got)
		}
		if r.count(DiskDamaged) != 1 {
			t.Errorf("%s: %d are counted as damaged", name, r.count(DiskDamaged))
		}
		if r.Sync(); len(r.files()) != 0 {
			t.Fatalf("%s: after a restart %q is left", name, r.files())
		}
	}
}

// A file in the place of another one is no response for it.
func TestFilesOfOtherResponses(t *testing.T) {
	r := newDiskRig(t, nil)
	r.put(withBody("http://a.example/", "one"))
	one := r.files()[0]
	r.put(withBody("http://b.example/", "two"))
	for _, f := range r.files() {
		if f != one {
			if err := os.Rename(f, one); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.forget()
	if a, b := r.content("http://a.example/"), r.content("http://b.example/"); a != "!" || b != "!" {
		t.Errorf("%q, %q", a, b)
	}
}

// What a process that has died has begun is removed, and what is no file of a cache stays.
func TestUnfinishedFiles(t *testing.T) {
	r := newDiskRig(t, nil)
	for _, name := range []string{"00/.0123456789abcdef-x", "00/readme", "00/0123", "ff/0000000000000000"} {
		if err := os.WriteFile(filepath.Join(r.o.Dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.restart()
	if diff := cmp.Diff([]string{"00/0123", "00/readme", "ff/0000000000000000"}, r.relative()); diff != "" {
		t.Error(diff)
	}
}

func (r *diskRig) relative() (names []string) {
	for _, f := range r.files() {
		name, _ := filepath.Rel(r.o.Dir, f)
		names = append(names, name)
	}
	return names
}

// The files are bounded by bytes and by number, over a restart as well, and those that leave are removed.
func TestDiskIsBounded(t *testing.T) {
	r := newDiskRig(t, func(o *DiskOptions) { o.Bytes = 16 << 20 })
	for i := range 100 {
		r.put(withBody(fmt.Sprintf("http://a.example/%d", i), long(300_000)))
	}
	check := func(what string, objects int64, most int64) {
		t.Helper()
		r.Sync()
		st, size := r.Disk().Stats(), int64(0)
		for _, f := range r.files() {
			if info, err := os.Stat(f); err == nil {
				size += roundUp(info.Size())
			}
		}
		if st.Bytes != size || st.Objects != int64(len(r.files())) || size > most || st.Objects > objects || st.Objects == 0 {
			t.Errorf("%s: %+v; %d bytes in %d files", what, st, size, len(r.files()))
		}
	}
	check("bytes", 100, 16<<20)
	r.Disk().SetLimits(8<<20, 8<<20, 0)
	check("a lower bound", 100, 8<<20)
	r.Disk().SetLimits(8<<20, 8<<20, 5)
	check("fewer objects", 5, 8<<20)
	r.put(withBody("http://b.example/", "x"))
	check("one more", 5, 8<<20)
	r.o.Bytes, r.o.Objects = 8<<20, 3
	r.restart()
	check("after a restart", 3, 8<<20)
}

// A disk that is full, or that fails, is a smaller cache: it is counted each time and logged once, and written again later.
func TestWriteErrors(t *testing.T) {
	r := newDiskRig(t, nil)
	dirs, err := filepath.Glob(filepath.Join(r.o.Dir, "??"))
	if err != nil || len(dirs) != 256 {
		t.Fatal(dirs, err)
	}
	for _, dir := range dirs {
		if err := errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o600)); err != nil { // what is no folder stays as it is
			t.Fatal(err)
		}
	}
	r.put(withBody("http://a.example/1", "x"))
	r.put(withBody("http://a.example/2", "x"))
	if n := r.count(DiskWriteError); n != 1 {
		t.Errorf("%d errors: nothing is to be tried for a while", n)
	}
	r.now = r.now.Add(diskRetry)
	r.put(withBody("http://a.example/3", "x"))
	if n := r.count(DiskWriteError); n != 2 || strings.Count(r.log.String(), "level=ERROR") != 1 {
		t.Errorf("%d errors, %s", n, r.log.String())
	}
	if r.content("http://a.example/1") != "x" {
		t.Error("it is not in memory")
	}
	for _, dir := range dirs {
		if err := errors.Join(os.Remove(dir), os.Mkdir(dir, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	r.now = r.now.Add(diskRetry)
	r.put(withBody("http://a.example/4", "x"))
	if n := r.count(DiskWritten); n != 1 || !strings.Contains(r.log.String(), "written again") {
		t.Errorf("%d written, %s", n, r.log.String())
	}
	r.forget()
	if a, b := r.content("http://a.example/1"), r.content("http://a.example/4"); a != "-" || b != "x" {
		t.Errorf("%q, %q", a, b)
	}
}

// ENOSPC in the middle of a file leaves none.
func TestFullDisk(t *testing.T) {
	for name, body := range map[string]string{"content": "x", "an empty content": ""} {
		r := newDiskRig(t, nil)
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		r.Disk().enqueue(1, func() {
			w := r.Disk().newFile(withBody("http://a.example/", ""))
			_ = w.f.Close()
			w.f = full
			w.add([]byte(body))
			w.commit(r.Disk().index.Mark("http://a.example/"))
		})
		r.Sync()
		if len(r.files()) != 0 || r.count(DiskWriteError) != 1 || r.content("http://a.example/") != "-" || !strings.Contains(r.log.String(), "no space left") {
			t.Errorf("%s: %q, %s", name, r.files(), r.log.String())
		}
	}
}

func TestReadErrorsAreLoggedOnce(t *testing.T) {
	r := newDiskRig(t, nil)
	for i := range 3 {
		r.put(withBody(fmt.Sprint("http://a.example/", i), "x"))
	}
	r.put(withBody("http://b.example/", "x"))
	r.forget()
	for i := range 3 {
		e, _ := r.Lookup(Key{URL: fmt.Sprint("http://a.example/", i)}, nil)
		if err := os.Remove(filepath.Join(r.o.Dir, r.Disk().name(e.disk.id))); err != nil {
			t.Fatal(err)
		}
		if got := r.content(e.URL); got != "!" {
			t.Errorf("%q", got)
		}
	}
	if r.content("http://b.example/") != "x" || r.count(DiskReadError) != 3 || strings.Count(r.log.String(), "level=ERROR") != 1 || !strings.Contains(r.log.String(), "read again") {
		t.Errorf("%d errors, %s", r.count(DiskReadError), r.log.String())
	}
}

func TestTheFolderIsOfOneGateway(t *testing.T) {
	r := newDiskRig(t, nil)
	if _, err := OpenDisk(r.o); !errors.Is(err, ErrDiskLocked) || !strings.Contains(err.Error(), r.o.Dir) {
		t.Errorf("%v", err)
	}
	if err := r.Disk().Close(); err != nil {
		t.Fatal(err)
	}
	r.open()
}

func TestTheFolderIsOfTheGatewayAlone(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(dir string) error
		want    string
	}{
		"readable by others": {func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o750)) }, "the cache's alone"},
		"writable by others": {func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o702)) }, "the cache's alone"},
		"a cache's that was opened": {func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600), os.Chmod(dir, 0o750))
		}, "chmod 700"},
		"a link":    {func(dir string) error { return errors.Join(os.Mkdir(dir+"2", 0o700), os.Symlink(dir+"2", dir)) }, "not a directory"},
		"a file":    {func(dir string) error { return os.WriteFile(dir, nil, 0o600) }, "not a directory"},
		"no parent": {func(dir string) error { return os.Remove(filepath.Dir(dir)) }, "no such file"},
	} {
		dir := filepath.Join(t.TempDir(), "p", "d")
		if err := errors.Join(os.Mkdir(filepath.Dir(dir), 0o700), c.prepare(dir)); err != nil {
			t.Fatal(err)
		}
		if d, err := OpenDisk(DiskOptions{Dir: dir, Bytes: 1 << 20}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				_ = d.Close()
			}
		}
	}
	if os.Geteuid() == 0 {
		dir := t.TempDir()
		if err := errors.Join(os.Chmod(dir, 0o700), os.Chown(dir, 12345, 12345)); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenDisk(DiskOptions{Dir: dir, Bytes: 1 << 20}); err == nil || !strings.Contains(err.Error(), "of user 12345") {
			t.Errorf("%v", err)
		}
	}
}

// What is purged is in no file, after a restart either, and is counted once though it is at both levels.
func TestPurgeReachesTheDisk(t *testing.T) {
	r := newDiskRig(t, nil)
	for i := range 6 {
		r.put(withBody(fmt.Sprint("http://a.example/", i), "x"))
	}
	r.forget()
	r.Promote(r.found("http://a.example/0"), []byte("x"), r.Mark("http://a.example/0"))
	if n := r.Invalidate("http://a.example/0") + r.Invalidate("http://a.example/1"); n != 2 {
		t.Errorf("%d", n)
	}
	if n := r.Purge("http://a.example/"); n != 4 || len(r.files()) != 0 {
		t.Errorf("%d, %q is left", n, r.files())
	}
	r.restart()
	if n := r.Disk().Stats().Objects; n != 0 {
		t.Errorf("%d objects", n)
	}
}

func (r *diskRig) found(url string) *Entry {
	r.t.Helper()
	e, _ := r.Lookup(Key{URL: url}, nil)
	if e == nil {
		r.t.Fatalf("%s is not stored", url)
	}
	return e
}

// block has the writer wait until the function that it returns is called.
func (r *diskRig) block() (goOn func()) {
	wait := make(chan struct{})
	r.Disk().enqueue(0, func() { <-wait })
	return sync.OnceFunc(func() { close(wait); r.Sync() })
}

// What waits to be written is not there after a purge.
func TestPurgeBeforeTheWrite(t *testing.T) {
	for name, purge := range map[string]func(r *diskRig){
		"URL":    func(r *diskRig) { r.Invalidate("http://a.example/") },
		"prefix": func(r *diskRig) { go r.Purge("http://a.") },
	} {
		r := newDiskRig(t, nil)
		goOn := r.block()
		e := withBody("http://a.example/", "x")
		r.Put(e, r.Mark(e.URL))
		purge(r)
		for r.Cache.has(e.URL) {
			time.Sleep(time.Millisecond)
		}
		goOn()
		if got := r.content(e.URL); got != "-" || len(r.files()) != 0 {
			t.Errorf("%s: %q, %q", name, got, r.files())
		}
	}
}

// A response that has been replaced does not answer while the new one waits to be written.
func TestReplacedResponses(t *testing.T) {
	r := newDiskRig(t, nil)
	r.put(withBody("http://a.example/", "old"))
	goOn := r.block()
	e := withBody("http://a.example/", "new")
	r.Put(e, r.Mark(e.URL))
	r.forget()
	if got := r.content(e.URL); got != "-" {
		t.Errorf("%q", got)
	}
	if goOn(); r.content(e.URL) != "new" || len(r.files()) != 1 {
		t.Errorf("%q in %q", r.content(e.URL), r.files())
	}
	r.Remove(withBody("http://a.example/", ""))
	if r.Sync(); r.content(e.URL) != "-" || len(r.files()) != 0 {
		t.Errorf("%q is left", r.files())
	}
}

// A 304 changes the description in the file, and no content is written again. One that does not fit leaves the old one.
func TestFreshenedFiles(t *testing.T) {
	for name, inMemory := range map[string]bool{"in memory": true, "on disk alone": false} {
		r := newDiskRig(t, nil)
		r.put(withBody("http://a.example/", "x"))
		file := r.files()[0]
		old := r.found("http://a.example/")
		if !inMemory {
			r.forget()
			old = r.found("http://a.example/")
		}
		freshen := func(field string) {
			t.Helper()
			fresh := old.copy()
			fresh.Body, fresh.disk = old.Body, old.disk
			fresh.lifetime += time.Hour
			fresh.Fields = append(fresh.Fields[:len(fresh.Fields):len(fresh.Fields)], semantics.Field{Name: "x-a", Value: field})
			if o := r.Freshened(old, fresh, r.Mark(old.URL)); o != Landed {
				t.Errorf("%s: %v", name, o)
			}
			r.Sync()
			old = r.found(old.URL)
		}
		freshen("a")
		if n := r.count(DiskWritten); n != 1 || r.files()[0] != file {
			t.Errorf("%s: %d written, %q", name, n, r.files())
		}
		lifetime := old.lifetime
		freshen(strings.Repeat("b", 5000))
		r.restart()
		if e := r.found("http://a.example/"); e.lifetime != lifetime || r.content(e.URL) != "x" {
			t.Errorf("%s: %v, want %v", name, e.lifetime, lifetime)
		}
	}
}

// An entry whose description has changed is removed when its file turns out to be damaged while an answer reads it.
func TestDamageAfterAFreshening(t *testing.T) {
	r := newDiskRig(t, nil)
	r.put(withBody("http://a.example/", long(3*sumBlock)))
	r.forget()
	old := r.found("http://a.example/")
	c, err := r.OpenContent(old)
	if err != nil {
		t.Fatal(err)
	}
	fresh := old.copy()
	fresh.disk = old.disk
	r.Freshened(old, fresh, r.Mark(old.URL))
	f, err := os.OpenFile(r.files()[0], os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("x"), old.disk.head+2*sumBlock)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	n, p := 0, make([]byte, 1000)
	for err == nil {
		var m int
		m, err = c.Read(p, files.Later)
		n += m
	}
	if c.Close(); n != 2*sumBlock || !errors.Is(err, errDamaged) || r.content(old.URL) != "-" {
		t.Errorf("%d bytes, %v, %.9q", n, err, r.content(old.URL))
	}
}

// Responses that are too long for memory are written while they arrive.
func TestSpilledResponses(t *testing.T) {
	r := newDiskRig(t, nil)
	body := long(5*sumBlock + 9)
	fill := r.Begin(withBody("http://a.example/", ""), r.Mark("http://a.example/"), -1, 100_000)
	if fill.Add([]byte(body[:90_000])) != Gathered || fill.Add([]byte(body[90_000:180_000])) != TooLong {
		t.Fatal("it is not too long")
	}
	s := fill.Spill()
	fill.Drop()
	if other := r.Spill(withBody("http://a.example/", ""), r.Mark("http://a.example/")); other != nil {
		t.Error("two requests write the same response")
	}
	for _, cut := range [][2]int{{90_000, 90_001}, {90_001, 200_000}, {200_000, len(body)}} {
		if !s.Add([]byte(body[cut[0]:cut[1]])) {
			t.Fatal("it is not taken")
		}
	}
	if r.Sync(); r.content("http://a.example/") != "-" {
		t.Error("a part of a response answers")
	}
	s.Commit()
	if r.Sync(); r.content("http://a.example/") != body || r.filling.Load() != 0 {
		t.Errorf("%.9q, %d bytes stay reserved", r.content("http://a.example/"), r.filling.Load())
	}
	s = r.Spill(withBody("http://a.example/", ""), r.Mark("http://a.example/"))
	s.Add([]byte("x"))
	s.Drop()
	if r.Sync(); r.content("http://a.example/") != "-" || len(r.files()) != 0 {
		t.Errorf("a response that is cut short: %q, %q", r.content("http://a.example/"), r.files())
	}
	s = r.Spill(withBody("http://a.example/", ""), r.Mark("http://a.example/"))
	for s.Add(make([]byte, 1<<20)) { // up to the bound of a response
	}
	if r.Sync(); len(r.files()) != 0 || len(r.Disk().fills) != 0 {
		t.Errorf("one that is too long: %q", r.files())
	}
}

// A disk that is too slow takes a bounded amount.
func TestSlowDisk(t *testing.T) {
	r := newDiskRig(t, nil)
	goOn := r.block()
	for i := range 20 {
		e := withBody(fmt.Sprint("http://a.example/", i), string(make([]byte, 2<<20)))
		r.Put(e, r.Mark(e.URL))
	}
	if n, queued := r.count(DiskFull), r.Disk().bytes; n != 5 || queued > diskQueue {
		t.Errorf("%d are left out, %d bytes wait", n, queued)
	}
	s := r.Spill(withBody("http://b.example/", ""), r.Mark("http://b.example/"))
	if s == nil || s.Add(make([]byte, 2<<20)) {
		t.Error("more than the bound waits")
	}
	if goOn(); r.Disk().bytes != 0 {
		t.Errorf("%d bytes wait", r.Disk().bytes)
	}
}

// budget bounds files.
type budget struct{ most, open int }

func (b *budget) TakeFile() bool {
	if b.open == b.most {
		return false
	}
	b.open++
	return true
}

func (b *budget) ReturnFile() { b.open-- }

// Answers share the descriptor of a file, and descriptors are bounded: the lack of one is no fault of the file.
func TestDescriptorsOfTheDisk(t *testing.T) {
	b := &budget{most: 1}
	r := newDiskRig(t, func(o *DiskOptions) { o.Budget = b })
	r.put(withBody("http://a.example/", "x"))
	r.put(withBody("http://b.example/", "x"))
	r.forget()
	one, err := r.OpenContent(r.found("http://a.example/"))
	two, err2 := r.OpenContent(r.found("http://a.example/"))
	if err != nil || err2 != nil || b.open != 1 {
		t.Fatal(err, err2, b.open)
	}
	if _, err := r.OpenContent(r.found("http://b.example/")); err != unix.EMFILE || r.count(DiskReadError) != 0 {
		t.Errorf("%v", err)
	}
	r.Invalidate("http://a.example/")
	r.Sync()
	one.Close()
	one.Close()
	if body, err := two.All(); string(body) != "x" || err != nil || b.open != 1 {
		t.Errorf("%q, %v: an answer ends with its file", body, err)
	}
	if two.Close(); b.open != 0 || r.content("http://b.example/") != "x" || b.open != 0 {
		t.Errorf("%d are open", b.open)
	}
}

// Parts of a content are those that were asked for, whatever the size of reads.
func TestSectionsOfAContent(t *testing.T) {
	r := newDiskRig(t, nil)
	body := long(3*sumBlock + 100)
	r.put(withBody("http://a.example/", body))
	r.forget()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		first := rng.IntN(len(body))
		n := 1 + rng.IntN(len(body)-first)
		c, err := r.OpenContent(r.found("http://a.example/"))
		if err != nil {
			t.Fatal(err)
		}
		c.Section(int64(first), int64(n))
		var got []byte
		for p := make([]byte, 1+rng.IntN(100_000)); c.Left() > 0; {
			m, err := c.Read(p, files.Wait(rng.IntN(2)))
			if err != nil && err != files.ErrWait {
				t.Fatal(err)
			}
			got = append(got, p[:m]...)
		}
		if c.Close(); string(got) != body[first:first+n] {
			t.Fatalf("%d bytes from %d differ", n, first)
		}
	}
}

// An upgrade: the new process has the lock, and reads the folder once the old one has left it. The old one may go on.
func TestHandingOver(t *testing.T) {
	r := newDiskRig(t, nil)
	r.put(withBody("http://a.example/", "x"))
	r.forget()
	goOn := r.block()
	e := withBody("http://b.example/", "y")
	r.Put(e, r.Mark(e.URL))
	r.forget()
	go goOn()
	r.Disk().Hold()
	if a, b := r.content("http://a.example/"), r.content("http://b.example/"); a != "-" || b != "-" {
		t.Errorf("the old process finds %q, %q", a, b)
	}
	r.Invalidate("http://a.example/")
	r.put(withBody("http://c.example/", "z"))
	if r.Sync(); len(r.files()) != 2 {
		t.Errorf("the old process has written or removed: %q", r.files())
	}
	fd, err := unix.Dup(int(r.Disk().Lock().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	old := r.Disk()
	r.o.Lock = os.NewFile(uintptr(fd), "lock")
	r.open()
	if a, b := r.content("http://a.example/"), r.content("http://b.example/"); a != "x" || b != "y" {
		t.Errorf("the new process finds %q, %q", a, b)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	r.o.Lock = nil
	if _, err := OpenDisk(r.o); !errors.Is(err, ErrDiskLocked) {
		t.Errorf("the folder is not locked any more: %v", err)
	}
}

// What is stored or invalidated while the folder is being read counts, and not what is found there.
func TestStoredWhileTheFolderIsRead(t *testing.T) {
	r := newDiskRig(t, nil)
	r.put(withBody("http://a.example/", "old"))
	r.put(withBody("http://b.example/", "old"))
	r.put(withBody("http://c.example/", "old"))
	if err := r.Disk().Close(); err != nil {
		t.Fatal(err)
	}
	d, err := OpenDisk(r.o)
	if err != nil {
		t.Fatal(err)
	}
	r.Named = NewNamed("n", Options{Memory: 1 << 24}, 1, func() time.Time { return r.now })
	r.UseDisk(d)
	d.state = diskServes // without reading the folder yet
	r.put(withBody("http://a.example/", "new"))
	r.Invalidate("http://b.example/")
	r.forget()
	d.load()
	if a, b, c := r.content("http://a.example/"), r.content("http://b.example/"), r.content("http://c.example/"); a != "new" || b != "-" || c != "old" {
		t.Errorf("%q, %q, %q", a, b, c)
	}
	if r.Sync(); len(r.files()) != 2 {
		t.Errorf("%q", r.files())
	}
}

func FuzzParseHead(f *testing.F) {
	e := withBody("http://a.example/", "")
	meta := e.appendMeta(nil)
	o := &onDisk{head: headFor(len(meta))}
	f.Add(appendHead(nil, meta, o))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := parseHead(bytes.NewReader(b), int64(len(b)))
		if err == nil && e.disk.fileSize() != int64(len(b)) {
			t.Errorf("%+v", e.disk)
		}
	})
}

func BenchmarkDiskHit(b *testing.B) {
	d, err := OpenDisk(DiskOptions{Dir: filepath.Join(b.TempDir(), "d"), Bytes: 64 << 20, MaxObject: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	n := NewNamed("n", Options{Memory: 1 << 20}, 1, time.Now)
	n.UseDisk(d)
	d.Start()
	e := withBody("http://a.example/", long(4096))
	n.Put(e, n.Mark(e.URL))
	d.Sync()
	n.Cache.Remove(e)
	b.ReportAllocs()
	for b.Loop() {
		e, _ := n.Lookup(Key{URL: "http://a.example/"}, nil)
		c, err := n.OpenContent(e)
		if err != nil {
			b.Fatal(err)
		}
		if _, err = c.All(); err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}
