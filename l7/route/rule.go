package route

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/millrace/millrace/semantics"
)

// PathType selects how a path is compared.
type PathType uint8

// Values of PathType.
const (
	// PathPrefix compares whole segments: "/a" is a prefix of "/a" and "/a/b", and not of "/ab". The zero
	// Path is the prefix "/", which all paths have.
	PathPrefix PathType = iota
	// PathExact compares all of the path.
	PathExact
	// PathRegexp is a regular expression (RE2) for all of the path.
	PathRegexp
)

// Path is a condition on the path of a request, without its query.
type Path struct {
	Type  PathType
	Value string
}

// Value is a condition on a field or on a parameter of the query.
type Value struct {
	Name   string // of fields in lower case
	Value  string
	Regexp bool // Value is a regular expression for all of it
}

// Match is the conditions of a rule: all that are there must hold.
type Match struct {
	// Hosts are names without a port, in lower case. "*.example.org" stands for all names below
	// example.org, of any depth. None is every host.
	Hosts   []string
	Path    Path
	Method  string // "" is any
	Fields  []Value
	Query   []Value
	SNI     []string       // the server name that TLS was opened with, like Hosts
	JA4     []string       // fingerprints of the client's hello
	ALPN    []string       // protocols of which the client's hello offers one
	Clients []netip.Prefix // addresses of the client
}

// Rule is one of a table. Where it leads is the caller's, by its number.
type Rule struct {
	Name  string // for Explain
	Match Match
}

// Request holds the parts of a request that rules are compared with. Host and Path are normalised: see semantics.NormalizePath.
type Request struct {
	Host   string // without a port, in lower case
	Path   string // without the query
	Query  string // without the question mark
	Method string
	Fields []semantics.Field
	SNI    string
	JA4    string
	ALPN   []string // what the client's hello offers
	Client netip.Addr

	reading reading
	repeats bool // a condition was compared with a field or a parameter that the request has twice
}

// rule is a compiled one.
type rule struct {
	number  int
	name    string
	method  string
	path    Path
	regexp  *regexp.Regexp // of the path
	fields  []value
	query   []value
	sni     []string
	ja4     []string
	alpn    []string
	clients []netip.Prefix
}

type value struct {
	Value
	regexp *regexp.Regexp
}

// Errors of New, each with the rule that has it.
var (
	ErrHost   = errors.New("not a host name")
	ErrPath   = errors.New("not a path")
	ErrRegexp = errors.New("not a regular expression")
	ErrName   = errors.New("not a field name in lower case")
	ErrMethod = errors.New("not a method")
)

// compile checks a rule.
func compile(number int, r *Rule) (*rule, error) {
	m := &r.Match
	c := &rule{number: number, name: r.Name, method: m.Method, path: m.Path, sni: m.SNI, ja4: m.JA4, alpn: m.ALPN, clients: m.Clients}
	if c.path.Value == "" && c.path.Type == PathPrefix {
		c.path.Value = "/"
	}
	for _, h := range slices.Concat(m.Hosts, m.SNI) {
		if err := CheckHost(h); err != nil {
			return nil, err
		}
	}
	if m.Method != "" && !semantics.IsToken(m.Method) {
		return nil, fmt.Errorf("method %q: %w", m.Method, ErrMethod)
	}
	if err := c.compilePath(); err != nil {
		return nil, err
	}
	for _, f := range m.Fields {
		if !semantics.IsName(f.Name) {
			return nil, fmt.Errorf("field %q: %w", f.Name, ErrName)
		}
	}
	var err error
	if c.fields, err = compileValues(m.Fields); err != nil {
		return nil, err
	}
	c.query, err = compileValues(m.Query)
	return c, err
}

// compilePath checks the path. One that no request can have is an error: requests are normalised.
func (c *rule) compilePath() (err error) {
	if c.path.Type == PathRegexp {
		c.regexp, err = wholly(c.path.Value)
		return err
	}
	normal, _, err := semantics.NormalizePath(nil, c.path.Value)
	if err != nil || !strings.HasPrefix(c.path.Value, "/") || strings.ContainsAny(c.path.Value, "?#") {
		return fmt.Errorf("path %q: %w", c.path.Value, ErrPath)
	}
	if normal != c.path.Value {
		return fmt.Errorf("path %q: %w: requests have %q in its place", c.path.Value, ErrPath, normal)
	}
	if c.path.Type == PathPrefix && len(normal) > 1 {
		c.path.Value = strings.TrimSuffix(normal, "/")
	}
	return nil
}

// wholly compiles a regular expression for all of a string.
func wholly(s string) (*regexp.Regexp, error) {
	_, err := syntax.Parse(s, syntax.Perl) // alone: with what is put around it, "a)|(?:b" would be one too
	if err != nil {
		return nil, fmt.Errorf("%q: %w: %w", s, ErrRegexp, err)
	}
	return regexp.Compile(`\A(?:` + s + `)\z`)
}

func compileValues(values []Value) (compiled []value, err error) {
	for _, v := range values {
		c := value{Value: v}
		if v.Regexp {
			if c.regexp, err = wholly(v.Value); err != nil {
				return nil, err
			}
		}
		compiled = append(compiled, c)
	}
	return compiled, nil
}

// CheckHost returns what is wrong with a name of Match.Hosts.
func CheckHost(host string) error {
	if !isHost(host) {
		return fmt.Errorf("host %q: %w", host, ErrHost)
	}
	return nil
}

// Check returns what is wrong with a path.
func (p Path) Check() error {
	c := rule{path: p}
	return c.compilePath()
}

// Check returns what is wrong with a condition on a parameter.
func (v *Value) Check() error {
	_, err := compileValues([]Value{*v})
	return err
}

// isHost reports whether s is a host name in lower case, or one of the form "*.name".
func isHost(s string) bool {
	s = strings.TrimPrefix(s, "*.")
	normal, ok := semantics.NormalizeHost(s)
	return ok && normal == s && semantics.IsAuthority(s) && semantics.Host(s) == s
}

// is reports whether a value is as the condition wants it.
func (v *value) is(s string) bool {
	if v.regexp != nil {
		return v.regexp.MatchString(s)
	}
	return s == v.Value.Value
}
