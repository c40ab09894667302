package accesslog

import "slices"

// run is a member of an object, or several that follow each other and have few values. The text of those is kept, and the values compared in
// place of making it again: it is more than half of a usual line.
type run struct {
	parts  []part
	steady *steady // nil: a single member
}

// steady is a run of fields.
type steady struct {
	names []string
	place func(r *Record) int             // of its values among those that are kept
	same  func(v *values, r *Record) bool // they are those of r
	set   func(v *values, r *Record)
}

// values holds the values of the fields of runs. They are copies: those of a record do not outlive the call. Slices are used again.
type values struct {
	listener, protocol, method                  []byte
	route, rule, pool, backend, failure, reason []byte
	cache                                       []byte
	status, attempts                            int
}

// keep copies a text.
func keep(to *[]byte, text string) { *to = append((*to)[:0], text...) }

var steadies = []steady{
	{
		[]string{"listener", "protocol", "method"},
		func(r *Record) int { return len(r.Listener) + len(r.Method) },
		func(v *values, r *Record) bool {
			return string(v.method) == r.Method && string(v.protocol) == r.Protocol && string(v.listener) == r.Listener
		},
		func(v *values, r *Record) {
			keep(&v.listener, r.Listener)
			keep(&v.protocol, r.Protocol)
			keep(&v.method, r.Method)
		},
	},
	{
		[]string{"route", "rule", "pool", "backend", "error", "reason"},
		func(r *Record) int {
			place := len(r.Error)
			for _, s := range [...]string{r.Rule, r.Backend} { // names differ at their ends
				for i := max(len(s)-3, 0); i < len(s); i++ {
					place = place*5 + int(s[i])
				}
			}
			return place
		},
		func(v *values, r *Record) bool {
			return string(v.backend) == r.Backend && string(v.rule) == r.Rule && string(v.route) == r.Route && string(v.pool) == r.Pool &&
				string(v.failure) == r.Error && string(v.reason) == r.Reason
		},
		func(v *values, r *Record) {
			keep(&v.route, r.Route)
			keep(&v.rule, r.Rule)
			keep(&v.pool, r.Pool)
			keep(&v.backend, r.Backend)
			keep(&v.failure, r.Error)
			keep(&v.reason, r.Reason)
		},
	},
	{
		[]string{"cache", "status", "attempts"},
		func(r *Record) int { return r.Status + len(r.Cache) },
		func(v *values, r *Record) bool {
			return v.status == r.Status && v.attempts == r.Attempts && string(v.cache) == r.Cache
		},
		func(v *values, r *Record) {
			keep(&v.cache, r.Cache)
			v.status, v.attempts = r.Status, r.Attempts
		},
	},
}

// runsOf puts the steady parts of a layout together.
func runsOf(parts []part) (runs []run) {
	for len(parts) > 0 {
		q := run{parts: parts[:1]}
		for i := range steadies {
			s := &steadies[i]
			if n := len(s.names); len(parts) >= n && slices.EqualFunc(s.names, parts[:n], func(name string, p part) bool { return p.name == name }) {
				q = run{parts[:n], s}
			}
		}
		runs, parts = append(runs, q), parts[len(q.parts):]
	}
	return runs
}

// memory holds the times and texts that the lines of a loop share.
type memory struct {
	moments
	layout *Layout
	runs   []*kept // of the layout; nil for single members
}

// use forgets the runs of another layout.
func (m *memory) use(l *Layout) {
	if m.layout != l {
		m.layout, m.runs = l, make([]*kept, len(l.runs))
		for i := range l.runs {
			if l.runs[i].steady != nil {
				m.runs[i] = &kept{}
			}
		}
	}
}

// kept holds texts of a run.
type kept [32]struct {
	values values
	text   []byte // of them
	used   bool
}

// append appends the members of a run.
func (q *run) append(b []byte, m *kept, r *Record) []byte {
	k := &m[uint(q.steady.place(r))%uint(len(m))]
	if !k.used || !q.steady.same(&k.values, r) {
		k.text = k.text[:0]
		for i := range q.parts {
			k.text = q.parts[i].appendMember(k.text, nil, r)
		}
		q.steady.set(&k.values, r)
		k.used = true
	}
	return append(b, k.text...)
}
