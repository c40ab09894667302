package cache

import (
	"strings"
	"time"

	"github.com/millrace/millrace/semantics"
)

// Directive is a set of directives of Cache-Control, a bit for each that needs no argument.
type Directive uint16

// Values of Directive.
const (
	NoStore Directive = 1 << iota
	NoCache
	Private
	Public
	MustRevalidate
	ProxyRevalidate
	MustUnderstand
	OnlyIfCached
	AnyStale // max-stale without an argument
)

// unset is a time that a Control does not have.
const unset time.Duration = -1

// maxSeconds bounds times, so that sums of them do not overflow: RFC 9111 1.2.2 names this number.
const maxSeconds = 1 << 31

// Control holds the directives of Cache-Control, of a request or a response (RFC 9111 5.2, RFC 5861). Times that are not there are
// below 0.
type Control struct {
	Directives Directive
	MaxAge     time.Duration
	SMaxAge    time.Duration
	MaxStale   time.Duration
	MinFresh   time.Duration

	StaleWhileRevalidate, StaleIfError time.Duration

	// Listed are the names of fields that no-cache and private name: these are not stored, and all else is (RFC 9111 5.2.2.4, 5.2.2.7).
	Listed []string

	// Targeted reports whether the directives are those of CDN-Cache-Control, in whose place Expires does not count (RFC 9213 2.2).
	Targeted bool
}

// noControl returns a Control without directives.
func noControl() Control {
	return Control{MaxAge: unset, SMaxAge: unset, MaxStale: unset, MinFresh: unset, StaleWhileRevalidate: unset, StaleIfError: unset}
}

// Has reports whether one of the directives is there.
func (c *Control) Has(d Directive) bool { return c.Directives&d != 0 }

// Demands reports whether a client asks for more than a fresh response.
func (c *Control) Demands() bool { return c.Has(NoCache) || c.MaxAge != unset || c.MinFresh != unset }

// ParseControl reads all lines of Cache-Control. Of a directive that is there twice the first counts. One that is malformed is taken in
// its strictest sense: a response whose max-age cannot be read is stale (RFC 9111 4.2.1).
func ParseControl(fields []semantics.Field) Control {
	c := noControl()
	for i := range fields {
		if f := &fields[i]; f.Name == "cache-control" {
			for rest := f.Value; rest != ""; {
				var d directive
				if d, rest = nextDirective(rest); d.name != "" {
					c.add(&d)
				}
			}
		}
	}
	return c
}

// add notes a directive.
func (c *Control) add(d *directive) {
	switch strings.ToLower(d.name) {
	case "no-store":
		c.Directives |= NoStore
	case "no-cache":
		c.addListed(d, NoCache)
	case "private":
		c.addListed(d, Private)
	case "public":
		c.Directives |= Public
	case "must-revalidate":
		c.Directives |= MustRevalidate
	case "proxy-revalidate":
		c.Directives |= ProxyRevalidate
	case "must-understand":
		c.Directives |= MustUnderstand
	case "only-if-cached":
		c.Directives |= OnlyIfCached
	case "max-age":
		first(&c.MaxAge, d, 0)
	case "s-maxage":
		first(&c.SMaxAge, d, 0)
	case "min-fresh":
		first(&c.MinFresh, d, maxSeconds*time.Second)
	case "max-stale":
		if d.form == noArgument {
			c.Directives |= AnyStale
			return
		}
		first(&c.MaxStale, d, 0)
	case "stale-while-revalidate":
		first(&c.StaleWhileRevalidate, d, 0)
	case "stale-if-error":
		first(&c.StaleIfError, d, 0)
	}
}

// addListed notes a directive that is either for all of a response or for the fields that it names.
func (c *Control) addListed(d *directive, bit Directive) {
	if d.form != quoted {
		c.Directives |= bit
		return
	}
	for name := range strings.SplitSeq(d.argument, ",") {
		if name = strings.ToLower(strings.Trim(name, " \t")); name != "" {
			c.Listed = append(c.Listed, name)
		}
	}
}

// first sets a time to the argument of the first directive of its name, and to strictest if it cannot be read.
func first(to *time.Duration, d *directive, strictest time.Duration) {
	if *to != unset {
		return
	}
	if *to = strictest; d.form == token || d.form == quoted {
		if t, ok := seconds(d.argument); ok {
			*to = t
		}
	}
}

// seconds reads delta-seconds (RFC 9111 1.2.2). More than 31 bits are the largest time.
func seconds(s string) (time.Duration, bool) {
	n := int64(0)
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = min(10*n+int64(s[i]-'0'), maxSeconds)
	}
	return time.Duration(n) * time.Second, s != ""
}

// directive is one directive with its argument, which has no quotes.
type directive struct {
	name, argument string
	form           argumentForm
}

// argumentForm is the form in which a directive has its argument.
type argumentForm uint8

const (
	noArgument argumentForm = iota
	token
	quoted
	malformed
)

// nextDirective reads the next directive of a value, and returns what follows it. Without one the name is empty.
func nextDirective(s string) (d directive, rest string) {
	s = strings.TrimLeft(s, " \t,")
	end := strings.IndexAny(s, "=,\" \t")
	if end < 0 {
		return directive{name: s}, ""
	}
	d.name, s = s[:end], s[end:]
	switch {
	case strings.HasPrefix(s, `="`):
		d.form = quoted
		d.argument, s = unquote(s[2:])
	case s[0] == '=':
		d.form = token
		d.argument, s, _ = strings.Cut(s[1:], ",")
		if d.argument = strings.TrimRight(d.argument, " \t"); strings.ContainsAny(d.argument, " \t\"") {
			d.form = malformed
		}
		return d, s
	}
	if s = strings.TrimLeft(s, " \t"); s != "" && s[0] != ',' {
		d.form = malformed
		s = skipToComma(s)
	}
	return d, s
}

// unquote reads the rest of a quoted string (RFC 9110 5.6.4), and returns what follows it.
func unquote(s string) (text, rest string) {
	if end := strings.IndexAny(s, `"\`); end >= 0 && s[end] == '"' {
		return s[:end], s[end+1:]
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return b.String(), s[i+1:]
		case s[i] == '\\' && i+1 < len(s):
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String(), ""
}

// skipToComma returns s from the next comma on that is not within quotes.
func skipToComma(s string) string {
	for s != "" && s[0] != ',' {
		if s[0] != '"' {
			s = s[1:]
			continue
		}
		_, s = unquote(s[1:])
	}
	return s
}
