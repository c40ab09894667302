package proxy

import (
	"errors"
	"io"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/clock"
	"github.com/millrace/millrace/l7/files"
	"github.com/millrace/millrace/l7/link"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
)

// local is the answer to an exchange out of a folder: the side of the exchange that is no connection.
//
// A loop never waits for a disk. What the kernel has in its caches, the loop reads itself, without a wait. All else a goroutine reads,
// one step at a time: it opens the file, or reads the next part of it, and the loop goes on once it has that. At most waiters of them
// wait for a disk at once. An answer holds one part of a file at most, and is read on when its client has taken that.
type local struct {
	noPeer
	w      *Worker
	x      *exchange // nil once the exchange has ended or goes on with a backend
	answer source
	buffer []byte // that a goroutine fills
	tasks  link.TaskSet
	state  localState

	request files.Request
	waits   bool       // for a descriptor, in the queue of the worker
	since   clock.Time // when it began to wait

	// Of a request that may go on to a backend.
	path, query string
	client      netip.Addr
}

// source is the content of an answer: a file of a folder, or one of a cache.
type source interface {
	Read(p []byte, w files.Wait) (int, error)
	Left() int64
	Close()
}

// localState is the state of an answer out of a folder.
type localState uint8

const (
	localOpening localState = iota // a goroutine looks for the file
	localFlows                     // the next part is read as soon as the batch is over
	localReading                   // a goroutine reads the next part
	localHeld                      // the client does not take what was read
	localOver                      // nothing more is read
)

const (
	// localPart is the size of a read.
	localPart = 64 << 10
	// localTurn bounds the bytes that an answer sends in one batch of events: others have their turn between.
	localTurn = 512 << 10
	// maxParts bounds the buffers that a worker keeps for parts.
	maxParts = 64
)

// waiters bounds the goroutines that wait for disks, of all workers. Each has a thread of the system meanwhile.
var waiters = make(chan struct{}, 64)

// afterwards calls f on a goroutine that may wait, and then g on the loop.
func (l *local) afterwards(f, g func()) {
	go func() {
		waiters <- struct{}{}
		f()
		<-waiters
		if !l.w.Loop.Do(g) { // the loop has ended
			l.drop()
		}
	}()
}

// serveFiles answers out of the folder of the rule. Where the folder has no such file, the request goes on to the rule's pools.
func (x editor) serveFiles(path, query string, client netip.Addr) {
	l := &local{w: x.w, x: x.exchange, path: path, query: query, client: client}
	x.local = l
	l.request = x.fileRequest(path, query)
	l.open()
}

// open looks for the file.
func (l *local) open() {
	site := l.x.rule.Files
	l.request.Shared = l.since == 0 && len(l.w.fileWaits) > 0 // those that wait for a descriptor come first
	a, err := site.Answer(&l.request, files.Now)
	if err != files.ErrWait {
		l.opened(a, err)
		return
	}
	l.request = l.request.Clone()
	l.afterwards(func() { a, err = site.Answer(&l.request, files.Later) }, func() { l.opened(a, err) })
}

// fileRequest returns what decides the answer. The path is the one that a backend would get, after URLRewrite.
func (x editor) fileRequest(path, query string) files.Request {
	shown := path // the form that was matched: as the client has sent it, it may begin with the name of another host
	if r := x.rule.Rewrite; r != nil {
		x.outgoing = *x.request
		x.target = r.Apply(&x.outgoing, x.target[:0], path, query)
		path, _ = semantics.SplitTarget(x.outgoing.Path)
	}
	return files.NewRequest(x.request.Method, path, shown, query, x.request.Fields)
}

// opened goes on with what was found.
func (l *local) opened(a *files.Answer, err error) {
	x := l.x
	if x == nil || x.phase != received { // it has ended, or was answered for its time is over
		if a != nil {
			a.Close()
		}
		l.state = localOver
		return
	}
	switch {
	case err == nil:
		l.answer = a
		l.begin(a)
	case lacksDescriptor(err) && l.wait():
	case len(x.rule.Backends) > 0 && (err == files.ErrNotFound || err == files.ErrMethod):
		if l.x, x.local, l.state = nil, nil, localOver; x.rule.Cache != nil {
			caching{x}.begin(l.path, l.query, l.client)
			return
		}
		x.toPool(l.path, l.query, l.client)
	default:
		l.refuse(err)
	}
}

// refusals are the answers where there is no file, by status.
var refusals = map[int]*Response{}

func init() {
	for _, status := range []int{403, 404, 405, 500, 503} {
		r := &Response{Status: status, Body: []byte(semantics.Reason(status) + "\n")}
		r.Fields.Add = []semantics.Field{{Name: "content-type", Value: "text/plain"}}
		if status == 405 {
			r.Fields.Add = append(r.Fields.Add, semantics.Field{Name: "allow", Value: "GET, HEAD"})
		}
		refusals[status] = r
	}
}

// refuse answers by a status.
func (l *local) refuse(err error) {
	status := 500
	switch {
	case errors.Is(err, files.ErrNotFound):
		status = 404
	case errors.Is(err, files.ErrMethod):
		status = 405
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		status = 403
	case lacksDescriptor(err):
		status = 503
	}
	x := l.x
	l.x, x.local, l.state = nil, nil, localOver
	r := refusals[status]
	if page := (guarding{x}).page(status); page != nil {
		r = r.with(page)
	}
	x.respond(r)
}

// with returns a response with the content of a page.
func (r *Response) with(p *Page) *Response {
	out := *r
	out.Body, out.Fields.Add = p.Body, slices.Clone(r.Fields.Add)
	for i := range out.Fields.Add {
		if f := &out.Fields.Add[i]; f.Name == "content-type" {
			f.Value = p.Type
		}
	}
	return &out
}

// begin sends the header of the answer.
func (l *local) begin(a *files.Answer) {
	x := l.x
	x.on(refused)
	x.status, x.progress = a.Status, x.w.Now
	x.up.forget(x.w)
	x.fields = append(x.fields[:0], a.Fields...)
	x.reply = semantics.Message{Status: a.Status, ContentLength: a.Length, Fields: x.fields}
	e := side.EndsByLength
	if a.Left() == 0 {
		e = side.EndsNow
	}
	out := x.responseMessage(&x.reply, e == side.EndsNow)
	if x.encoder != nil {
		e = side.EndsLater
	}
	if err := x.front.Head(out, e); err != nil {
		x.frontFailed()
		return
	}
	if a.Left() == 0 {
		l.end()
		return
	}
	l.flow()
}

// flow begins to send the content.
func (l *local) flow() {
	x := l.x
	x.down.from, l.state = l, localFlows
	l.send()
	if l.x != nil {
		x.deadline() // of a client that does not take it
	}
}

// send sends the next parts of the file, as far as they are there and the client takes them.
func (l *local) send() {
	x := l.x
	for sent := 0; l.state == localFlows; {
		if sent >= localTurn {
			l.w.Run.Add(link.Later, l, &l.tasks)
			return
		}
		if to, m, a := l.plainFront(); m != nil {
			n, going := l.sendDirectly(to, m, a)
			if sent += n; !going {
				return
			}
			continue
		}
		n, err := l.answer.Read(l.part(), files.Now)
		if err == files.ErrWait {
			l.read()
			return
		}
		if sent += n; !l.got(n, err) {
			return
		}
	}
	if l.state == localHeld {
		x.deadline()
	}
}

// read has a goroutine read the next part.
func (l *local) read() {
	l.state = localReading
	part, n, err := l.part(), 0, error(nil)
	l.afterwards(func() { n, err = l.answer.Read(part, files.Later) }, func() {
		if l.x == nil { // it has ended meanwhile
			l.free()
			return
		}
		if l.state = localFlows; l.got(n, err) {
			l.send()
		}
	})
}

// got passes a part on, and reports whether another one follows now.
func (l *local) got(n int, err error) bool {
	x := l.x
	if err != nil && err != io.EOF {
		l.fail()
		return false
	}
	passOn(x, l.buffer[:n])
	if l.answer.Left() == 0 {
		l.end()
		return false
	}
	return true
}

// fail ends an answer whose file cannot be read.
func (l *local) fail() {
	l.x.failure = "http_response_incomplete"
	l.x.cut(false)
}

// end ends the answer.
func (l *local) end() {
	x := l.x
	l.state = localOver
	l.drop()
	l.w.filesAt = l.w.Now
	if x.encoder != nil {
		coder{x}.endEncoder()
	}
	x.down.message = max(x.down.message, allArrived)
	x.down.end(x.w)
	x.finishIfDone()
	if l.x != nil {
		x.deadline()
	}
}

// leave ends the use of the answer with the exchange. A goroutine that is at work frees it when it is done.
func (l *local) leave() {
	was := l.state
	l.x, l.state = nil, localOver
	l.withdraw()
	if was != localOpening && was != localReading {
		l.free()
	}
}

// free frees what the answer has. The loop calls it.
func (l *local) free() {
	l.drop()
	l.w.filesAt = l.w.Now
	if l.buffer != nil && len(l.w.parts) < maxParts {
		l.w.parts = append(l.w.parts, l.buffer)
	}
	l.buffer = nil
}

// drop frees the file.
func (l *local) drop() {
	if l.answer != nil {
		l.answer.Close()
	}
}

// part returns the buffer for a part of the file.
func (l *local) part() []byte {
	w := l.w
	switch n := len(w.parts); {
	case l.buffer != nil:
	case n > 0:
		l.buffer = w.parts[n-1]
		w.parts = w.parts[:n-1]
	default:
		l.buffer = make([]byte, localPart)
	}
	return l.buffer
}

// Run implements link.Runnable: it reads on.
func (l *local) Run(t link.Task) {
	if l.tasks.Clear(t); l.x != nil && l.state == localFlows {
		l.send()
	}
}

// Pause implements side.Stream: the file is read no further while its client does not take what was read.
func (l *local) Pause(on bool) {
	switch {
	case on && l.state == localFlows:
		l.state = localHeld
	case !on && l.state == localHeld:
		l.state = localFlows
		l.w.Run.Add(link.Restart, l, &l.tasks)
	}
}

// noPeer is the part of side.Stream of a side that is no connection: it takes everything, and nothing follows.
type noPeer struct{}

func (noPeer) Head(*semantics.Message, side.Ending) error { return nil }
func (noPeer) Write(p []byte) int                         { return len(p) }
func (noPeer) End([]semantics.Field)                      {}
func (noPeer) Pause(bool)                                 {}
func (noPeer) Cancel(bool)                                {}
func (noPeer) Release()                                   {}
