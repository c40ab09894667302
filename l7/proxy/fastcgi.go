package proxy

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/l7/fastcgi"
	"github.com/millrace/millrace/l7/fcgiside"
	"github.com/millrace/millrace/l7/files"
	"github.com/millrace/millrace/l7/rewrite"
	"github.com/millrace/millrace/l7/side"
	"github.com/millrace/millrace/semantics"
)

// FastCGI configures how requests of a pool become those of scripts. It is not changed once workers have it.
type FastCGI struct {
	fastcgi.Scripts
	Root   string      // of the scripts, at the backends
	Site   *files.Site // the same files at the gateway, where scripts are looked up; nil: they are not
	Params []FastCGIParam
	Keep   bool // connections carry more than one request
	Most   int  // bytes of content of unknown length that are held until its end
	// Log gets what scripts write for the log. It is called on the loop, and borrows the text; nil: it is only counted.
	Log func(backend string, text []byte)
}

// FastCGIParam is a variable that the operator sets. It replaces one of that name.
type FastCGIParam struct {
	Name  string
	Value *rewrite.Template
}

// replaces reports whether a variable is one of those that the operator sets.
func (f *FastCGI) replaces(name string) bool {
	return slices.ContainsFunc(f.Params, func(p FastCGIParam) bool { return p.Name == name })
}

// scripting is an exchange with a pool that speaks FastCGI.
type scripting struct{ *exchange }

// begin finds the script of the request, and begins the first attempt. A loop does not wait for a disk: what the kernel has not in its
// caches is looked up by a goroutine, meanwhile the request is local's.
func (x scripting) begin() {
	if isWebSocket(&x.outgoing) { // CGI has no tunnels
		x.answer(errNoTunnel)
		return
	}
	f := x.pooled.FastCGI
	path, _ := semantics.SplitTarget(x.outgoing.Path)
	if f.Site == nil {
		x.found(f.Find(path, nil))
		return
	}
	script, err := f.Find(path, func(name string) (bool, error) { return f.Site.Has(name, files.Now) })
	if err != files.ErrWait {
		x.found(script, err)
		return
	}
	path = strings.Clone(path)
	l := &local{w: x.w, x: x.exchange}
	x.local = l
	l.afterwards(func() {
		script, err = f.Find(path, func(name string) (bool, error) { return f.Site.Has(name, files.Later) })
	}, func() {
		if l.x == nil || x.phase != received { // it has ended, or was answered for its time is over
			l.state = localOver
			return
		}
		l.x, x.local, l.state = nil, nil, localOver
		x.found(script, err)
	})
}

// found goes on with the script of the request.
func (x scripting) found(s fastcgi.Script, err error) {
	switch {
	case err == nil:
		x.script = &s
		x.attempt()
	case err == fastcgi.ErrFolder && (x.request.Method == "GET" || x.request.Method == "HEAD"):
		x.redirectToFolder()
	case err == fastcgi.ErrNoScript, err == fastcgi.ErrFolder:
		x.w.counters.noScript.Add(1)
		x.answer(errNoRoute)
	case err == unix.EACCES, err == unix.EPERM:
		x.answer(errForbidden)
	default:
		x.answer(errLocal)
	}
}

// redirectToFolder leads to the folder of an index. The path is normalised: as the client has sent it, it may begin with the name of
// another host (RFC 3986 4.2).
func (x scripting) redirectToFolder() {
	path, query := semantics.SplitTarget(x.request.Path)
	normal, buf, err := semantics.NormalizePath(x.path, path)
	if err != nil { // it was normalised before
		x.refuse(side.RefusedPath)
		return
	}
	x.target = append(append(semantics.AppendReference(x.target[:0], normal), '/'), query...)
	x.path = buf[:0]
	x.fields = append(x.fields[:0], semantics.Field{Name: "location", Value: view(x.target)})
	guarding(x).announce()
	x.send(301, nil)
}

// describe gives the stream of a backend the variables of the request.
func (x scripting) describe(back side.Stream) {
	s, f := back.(*fcgiside.Back), x.pooled.FastCGI
	c, m := x.client, x.request
	_, query := semantics.SplitTarget(x.outgoing.Path)
	r := fastcgi.Request{
		Script: *x.script, Root: f.Root, Method: x.outgoing.Method, Target: m.Path, Query: strings.TrimPrefix(query, "?"), Protocol: x.caps.Protocol,
		Host: x.outgoing.Authority, Client: c.listener.Forwarding.Client(m.Fields, c.addr.Addr()), Local: c.listener.Address, TLS: c.tls, Fields: x.outgoing.Fields,
	}
	if r.Client == c.addr.Addr().Unmap() {
		r.Port = c.addr.Port()
	}
	if c.local.IsValid() {
		r.Local = c.local
	}
	if x.hold != nil {
		r.User = view(x.hold.user)
	}
	s.Variables = r.Append(s.Variables[:0], f.replaces)
	for i := range f.Params {
		p, start := &f.Params[i], len(x.scratch) // values of fields are in it, too
		x.scratch = p.Value.Append(x.scratch, editor(x).values(&rewrite.Headers{Identifies: p.Value.Identifies()}))
		s.Variables = fastcgi.AppendPair(s.Variables, p.Name, view(x.scratch[start:]))
	}
}

// newScriptBack has FastCGI on the connection that was established.
func (o opener) newScriptBack() side.Backend {
	p := o.key.pool
	f := p.FastCGI
	return fcgiside.NewBack(o.link, fcgiside.Options{
		Keep: f.Keep, Most: f.Most, Limits: fastcgi.Limits{Bytes: p.Header.Bytes, Fields: p.Header.Fields}, Log: o.logScript,
	}, o.backConn)
}

// logScript passes on what a script writes for the log.
func (s *backConn) logScript(_ any, text []byte) {
	s.w.counters.scriptLog.Add(uint64(len(text)))
	if log := s.key.pool.FastCGI.Log; log != nil {
		log(s.key.backend.Name(), text)
	}
}
