package proxy

import (
	"time"

	"github.com/millrace/millrace/l7/cache"
)

// diskRead is the part of a cached exchange that reads a response out of a file. The file is opened, and a short response read, before
// anything else is done with the response: so what fails is a miss, and the rest of the request never waits for the disk. A long one is sent
// as files of a folder are, by a local.
type diskRead struct {
	// found is the response, in place of what the next look-up would find; used is the one after that.
	found, used *cache.Entry
	// content is an open file, until a local takes it.
	content *cache.Content
	// failed looks only into memory from now on: the request has waited for a disk once in vain.
	failed bool
	job    *diskJob
}

// diskJob is a wait for the disk. Its exchange may end before.
type diskJob struct {
	c       *cached // nil once nothing waits for it
	content *cache.Content
	entry   *cache.Entry
	body    []byte
	err     error
}

const (
	// diskPending bounds the requests of a worker that wait for files of a cache: others ask the backend.
	diskPending = 1024
	// diskWait bounds their wait.
	diskWait = 5 * time.Second
)

// leave ends the use of the file.
func (r *diskRead) leave() {
	if r.content != nil {
		r.content.Close()
	}
	if r.job != nil {
		r.job.c = nil
	}
}

// lookup returns the stored response for the request.
func (x caching) lookup() (*cache.Entry, cache.Miss) {
	c := x.cached
	switch r := &c.read; {
	case r.found != nil:
		r.found, r.used = nil, r.found
		return r.used, cache.Found
	case r.failed:
		return c.use.Store.Cache.Lookup(c.key(), x.request.Fields)
	}
	return c.use.Store.Lookup(c.key(), x.request.Fields)
}

// needsDisk reports whether the content of an entry has to be read before it is used.
func (x caching) needsDisk(e *cache.Entry) bool {
	c := x.cached
	return e.OnDisk() && c.read.used != e && x.request.Method != "HEAD"
}

// fromDisk opens the file of an entry, on a goroutine, and looks again. Others that ask for a short one wait for the same read.
func (x caching) fromDisk(e *cache.Entry) {
	c, w := x.cached, x.w
	if c.read.content != nil { // of another response, which has been replaced meanwhile
		c.read.content.Close()
		c.read.content = nil
	}
	short := e.Length() <= c.use.MemoryBound()
	if w.diskReads >= diskPending {
		c.read.failed = true
		x.look()
		return
	}
	if short && c.flight == nil && x.joins() {
		return
	}
	j := &diskJob{c: c, entry: e}
	c.read.job = j
	w.diskReads++
	guarding{x.exchange}.holding()
	x.waits = j
	guarding{x.exchange}.holdUntil(diskWait, func(x guarding) { // withdraw was called
		x.cached.read.failed = true
		caching{x.exchange}.goOn()
	})
	store := c.use.Store
	go func() {
		waiters <- struct{}{}
		if j.content, j.err = store.OpenContent(e); j.err == nil && short {
			j.body, j.err = j.content.All()
			j.content.Close()
		}
		<-waiters
		if !w.Loop.Do(func() { j.done(w, short) }) && j.content != nil { // the loop has ended
			j.content.Close()
		}
	}()
}

// done goes on with the request. It runs on its loop.
func (j *diskJob) done(w *Worker, short bool) {
	w.diskReads--
	c := j.c
	if c == nil { // it has left
		if j.content != nil {
			j.content.Close()
		}
		return
	}
	x := c.x
	w.Enter()
	x.waits, c.read.job = nil, nil
	switch {
	case j.err != nil:
		c.read.failed = true
	case short:
		c.read.found = c.use.Store.Promote(j.entry, j.body, c.mark)
	default:
		c.read.found, c.read.content = j.entry, j.content
	}
	if c.flight != nil && (j.err != nil || j.entry.Shared(c.use.Store.Clock())) {
		outcome := cache.Landed
		if j.err != nil {
			outcome = cache.Failed
		}
		c.endFlight(outcome)
	}
	caching{x}.goOn()
}

// withdraw implements awaited.
func (j *diskJob) withdraw(*exchange) {
	j.c.read.job = nil
	j.c.endFlight(cache.Failed)
	j.c = nil
}

// feedFromDisk sends the content of an answer out of its file.
func (x caching) feedFromDisk(a *cache.Answer) {
	c := x.cached
	content := c.read.content
	content.Section(a.First, a.Left)
	c.read.content, c.feed = nil, feedOver
	l := &local{w: x.w, x: x.exchange, answer: content}
	x.local = l
	l.flow()
}

// gathers reports whether content of the response is stored while it passes.
func (c *cached) gathers() bool { return c.fill != nil || c.spill != nil }
