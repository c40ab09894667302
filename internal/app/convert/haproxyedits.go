package convert

import (
	"regexp"
	"slices"
	"strings"
)

// HAProxy runs rules in their order: a condition sees what rules before it have changed. Rules of the gateway match the request as the
// client has sent it. So a test of a sample that is changed before it has no counterpart.

// Samples of requests that rules change, beside the fields, which have their names.
const (
	editedMethod = ":method"
	editedClient = ":src"
	editedAll    = ":fields" // all fields
)

// editedBefore returns the samples that rules have changed when the condition of a line is tested.
func (h *haproxy) editedBefore(p *proxy, words []string) map[string]bool {
	edited := map[string]bool{}
	if len(words) == 0 || words[0] == "tcp-request" && slices.Contains([]string{"connection", "session"}, (&line{words: words}).arg(1)) {
		return edited
	}
	if p.kind == "backend" { // some frontend leads to it
		for _, front := range h.fronts {
			for _, x := range front.lines {
				x.edits(edited)
			}
		}
	}
	for _, x := range p.lines {
		if len(x.words) > 0 && &x.words[0] == &words[0] && words[0] == "http-request" {
			break // other rules come behind all of http-request
		}
		x.edits(edited)
	}
	return edited
}

// edits adds the samples that a line changes.
func (x *line) edits(edited map[string]bool) {
	switch x.name() {
	case "http-request set-header", "http-request add-header", "http-request replace-header", "http-request replace-value":
		edited[strings.ToLower(x.arg(2))] = true
	case "http-request del-header":
		if x.arg(3) == "-m" {
			edited[editedAll] = true
		}
		edited[strings.ToLower(x.arg(2))] = true
	case "http-request set-method":
		edited[editedMethod] = true
	case "http-request set-src":
		edited[editedClient] = true
	}
	if x.words[0] == "tcp-request" && x.arg(2) == "set-src" {
		edited[editedClient] = true
	}
}

// changed reports whether a rule before the condition changes the sample of a test.
func (h *haproxy) changed(fetch, arg string) bool {
	switch fetch {
	case "hdr", "fhdr":
		return h.edited[arg] || h.edited[editedAll]
	case "hdr_host":
		return h.edited["host"] || h.edited[editedAll]
	case "cook", "cookie":
		return h.edited["cookie"] || h.edited[editedAll]
	case "method":
		return h.edited[editedMethod]
	case "src":
		return h.edited[editedClient]
	}
	return false
}

// editsPath reports whether a line changes the path or the query of requests.
func (x *line) editsPath() bool {
	switch x.name() {
	case "http-request set-path", "http-request set-pathq", "http-request set-uri", "http-request set-query", "http-request replace-path", "http-request replace-pathq", "http-request replace-uri":
		return true
	}
	return false
}

// closeEdited closes the requests whose path a line changes, where a line behind it refuses requests by their path. It reports whether
// it does.
func (f *frontend) closeEdited(x *line) bool {
	if !x.editsPath() || !f.refusesByPath(x) {
		return false
	}
	f.closeWith(x, narrowed(f.h.covering(f.p, x.words), x.editedPaths()), "a rule behind it refuses requests by the path that it makes", "write the refusal for the path that clients send as well")
	return true
}

// refusesByPath reports whether a line of the section behind another, or a backend that the section leads to, refuses requests by their
// path.
func (f *frontend) refusesByPath(x *line) bool {
	behind := false
	for _, o := range f.p.lines {
		switch {
		case o == x:
			behind = true
		case o.words[0] == "use_backend" && f.p.readsPath(o.words):
			to := f.h.backends[o.arg(1)]
			if to == nil || slices.ContainsFunc(to.lines, (*line).refuses) || to.last("server") == nil && to.last("server-template") == nil {
				return true
			}
		case (behind || o.words[0] == "redirect") && o.refuses() && f.p.readsPath(o.words):
			return true
		}
	}
	if f.p.kind == "backend" {
		return false
	}
	for _, b := range f.h.backends {
		if b != f.p && slices.ContainsFunc(b.lines, func(o *line) bool { return o.refuses() && b.readsPath(o.words) }) {
			return true
		}
	}
	return false
}

// readsPath reports whether the condition of a line has a sample of the path or of the query.
func (p *proxy) readsPath(words []string) bool {
	return slices.ContainsFunc(conditionTerms(words), func(term []string) bool {
		return slices.ContainsFunc(p.testsOf(term), func(t []string) bool { return len(t) > 0 && pathSample.MatchString(t[0]) })
	})
}

var pathSample = regexp.MustCompile(`^(?:path|url|base|query|capture\.req\.uri)`)

// regsubForm is a path of which every part that an expression matches is replaced.
var regsubForm = regexp.MustCompile(`^%\[path,regsub\(([^,"'()]+),`)

// editedPaths returns the condition on the paths that a line changes.
func (x *line) editedPaths() verdict {
	re := ""
	switch m := regsubForm.FindStringSubmatch(x.arg(2)); {
	case x.name() == "http-request replace-path":
		re = x.arg(2)
	case x.name() == "http-request set-path" && m != nil:
		re = m[1]
	}
	whole, ok := wholeRegexp(re, false)
	if re == "" || !ok {
		return always
	}
	return verdict{atoms: []atom{{match: match{kind: pathRegexp, path: whole}}}, known: true}
}
