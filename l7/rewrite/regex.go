package rewrite

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"

	"github.com/millrace/millrace/semantics"
)

// Bounds of a Regex. Matching takes the length of the path times the size of the program at most: RE2 has no backtracking.
const (
	maxPattern      = 1024
	maxInstructions = 1000
	maxReferences   = 16
	maxRewritten    = 32 << 10 // bytes of the path and query that are made
)

// Regex replaces a whole path that a regular expression matches, by text with what its groups have matched.
type Regex struct {
	re    *regexp.Regexp
	path  []regexPart
	query []regexPart // behind the question mark
	asks  bool        // the replacement has a question mark
}

// regexPart is text, or a group: text is "" then.
type regexPart struct {
	text  string
	group int
}

// Errors of NewRegex.
var (
	errPattern   = errors.New("the expression is too long, or too large")
	errReference = errors.New("a dollar sign is followed by a number, a name in braces or another dollar sign")
	errPath      = errors.New("the replacement begins with a slash, and is a path as rules compare it")
)

// NewRegex returns a replacement for paths that pattern matches as a whole. In to, $1 and ${1} stand for the first group, ${name} for
// one with a name, and $$ for a dollar sign.
func NewRegex(pattern, to string) (*Regex, error) {
	if len(pattern) > maxPattern {
		return nil, errPattern
	}
	whole := `\A(?:` + pattern + `)\z`
	for _, one := range []string{pattern, whole} { // the first for one whose parentheses end those around it
		parsed, err := syntax.Parse(one, syntax.Perl)
		if err != nil {
			return nil, err
		}
		if program, err := syntax.Compile(parsed.Simplify()); err != nil || len(program.Inst) > maxInstructions {
			return nil, errPattern
		}
	}
	re, err := regexp.Compile(whole)
	if err != nil {
		return nil, err
	}
	r := &Regex{re: re}
	path, query, asks := strings.Cut(to, "?")
	if r.path, err = r.parts(path); err != nil {
		return nil, err
	}
	if r.query, err = r.parts(query); err != nil {
		return nil, err
	}
	if r.asks = asks; len(r.path)+len(r.query) > 2*maxReferences+2 {
		return nil, fmt.Errorf("the replacement has more than %d groups", maxReferences)
	}
	return r, r.check(path, query)
}

// check reports text of a replacement that cannot be a part of a path or a query. Its first part is text that begins with a slash: a
// group could be empty, or begin with another host.
func (r *Regex) check(path, query string) error {
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsAny(path+query, "#?") || query != "" && !semantics.IsTarget(query) {
		return errPath
	}
	whole := []byte(nil)
	for _, p := range r.path { // any group stands for a part of a path
		if whole = append(whole, p.text...); p.text == "" {
			whole = append(whole, 'x')
		}
	}
	if normal, _, err := semantics.NormalizePath(nil, string(whole)); err != nil || normal != string(whole) || !semantics.IsTarget(normal) {
		return errPath
	}
	return nil
}

// parts splits a replacement into texts and groups.
func (r *Regex) parts(s string) (list []regexPart, err error) {
	text := []byte(nil)
	for s != "" {
		before, rest, found := strings.Cut(s, "$")
		text = append(text, before...)
		if s = rest; !found {
			break
		}
		if strings.HasPrefix(s, "$") {
			text, s = append(text, '$'), s[1:]
			continue
		}
		name := ""
		if s, name, err = reference(s); err != nil {
			return nil, err
		}
		group := r.group(name)
		if group < 0 {
			return nil, fmt.Errorf("the expression has no group %s", name)
		}
		if len(text) > 0 {
			list, text = append(list, regexPart{text: string(text)}), nil
		}
		list = append(list, regexPart{group: group})
	}
	if len(text) > 0 {
		list = append(list, regexPart{text: string(text)})
	}
	return list, nil
}

// reference cuts the name of a group behind a dollar sign.
func reference(s string) (rest, name string, err error) {
	if inner, ok := strings.CutPrefix(s, "{"); ok {
		name, rest, ok = strings.Cut(inner, "}")
		if !ok || name == "" {
			return "", "", errReference
		}
		return rest, name, nil
	}
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	if n == 0 {
		return "", "", errReference
	}
	return s[n:], s[:n], nil
}

// group returns the number of a group, -1 for one that there is not.
func (r *Regex) group(name string) int {
	if n, err := strconv.Atoi(name); err == nil {
		if n < 0 || n > r.re.NumSubexp() {
			return -1
		}
		return n
	}
	return r.re.SubexpIndex(name)
}

// Apply appends the path and the query that a path becomes, with the client's query behind that of the replacement. matched is false
// where the expression does not match: nothing was appended. ok is false where the result is no path, or above the root, or too long.
//
// What groups have matched are parts of a normalised path, but joined they may be none: the result is normalised again, so that no dot
// segment or second slash arises. In the query they cannot end a parameter.
func (r *Regex) Apply(dst []byte, path, query string) (out []byte, matched, ok bool) {
	groups := r.re.FindStringSubmatchIndex(path)
	if groups == nil {
		return dst, false, true
	}
	start := len(dst)
	for _, p := range r.path {
		if dst = append(dst, p.text...); p.text == "" {
			dst = append(dst, of(path, groups, p.group)...)
		}
		if len(dst)-start > maxRewritten {
			return dst[:start], true, false
		}
	}
	made := string(dst[start:])
	normal, dst, err := semantics.NormalizePath(dst[:start], made)
	if err != nil {
		return dst[:start], true, false
	}
	if len(dst) == start { // it was in its form
		dst = append(dst, normal...)
	}
	dst = r.appendQuery(dst, path, groups, query)
	return dst, true, len(dst)-start <= maxRewritten
}

// appendQuery appends the query of the replacement, and the client's.
func (r *Regex) appendQuery(dst []byte, path string, groups []int, query string) []byte {
	if !r.asks {
		return append(dst, query...)
	}
	dst = append(dst, '?')
	for _, p := range r.query {
		if dst = append(dst, p.text...); p.text == "" {
			dst = appendParameter(dst, of(path, groups, p.group))
		}
		if len(dst) > 2*maxRewritten {
			return dst
		}
	}
	if client := strings.TrimPrefix(query, "?"); client != "" {
		if len(r.query) > 0 {
			dst = append(dst, '&')
		}
		dst = append(dst, client...)
	}
	return dst
}

// of returns what a group has matched.
func of(path string, groups []int, n int) string {
	if groups[2*n] < 0 {
		return ""
	}
	return path[groups[2*n]:groups[2*n+1]]
}

// appendParameter appends a part of a path as that of a value: what separates parameters, or is decoded in a query alone, is encoded.
func appendParameter(dst []byte, s string) []byte {
	const digits = "0123456789ABCDEF"
	for i := range len(s) {
		switch c := s[i]; c {
		case '&', ';', '=', '+', '?', '#':
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return dst
}
