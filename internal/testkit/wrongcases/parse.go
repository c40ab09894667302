package wrongcases

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Request is one that a back end received.
type Request struct {
	Method, Target string
	Fields         [][2]string // names in lower case
	Content        string
	Trailers       [][2]string
	Whole          bool // it is complete
}

// Field returns the value of the first field of a name.
func (r *Request) Field(name string) (value string, ok bool) {
	for _, f := range r.Fields {
		if f[0] == name {
			return f[1], true
		}
	}
	return "", false
}

// The grammar of what a proxy should send: RFC 9112 without anything that a recipient would have to repair.
var (
	requestLine = regexp.MustCompile("^([!#$%&'*+.^_`|~0-9A-Za-z-]+) ((?:/[!-\"$-~]*)|\\*|[!-\"$-~]+:[0-9]+) HTTP/1\\.[01]$")
	fieldLine   = regexp.MustCompile("^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*((?:[!-~\u0080-\u00ff](?:[\t -~\u0080-\u00ff]*[!-~\u0080-\u00ff])?)?)$")
	chunkLine   = regexp.MustCompile("^[0-9A-Fa-f]{1,15}$")
	length      = regexp.MustCompile("^(0|[1-9][0-9]{0,17})$")
)

// errShort says that the bytes end within a request.
var errShort = errors.New("the bytes end within a request")

// Parse reads the requests that a back end received on one connection. An error says what in them two recipients could read
// differently. The last request may not be whole.
func Parse(b []byte) (requests []Request, err error) {
	for len(b) > 0 {
		var r Request
		rest, err := r.parse(b)
		r.Whole = err == nil
		requests = append(requests, r)
		if errors.Is(err, errShort) {
			return requests, nil
		}
		if err != nil {
			return requests, fmt.Errorf("request %d: %w", len(requests), err)
		}
		b = rest
	}
	return requests, nil
}

// line cuts a line off, which ends with CRLF and has no other CR or LF.
func line(b []byte) (text string, rest []byte, err error) {
	i := bytes.IndexAny(b, "\r\n")
	switch {
	case i < 0 || b[i] == '\r' && i == len(b)-1:
		return "", nil, errShort
	case b[i] == '\n' || b[i+1] != '\n':
		return "", nil, fmt.Errorf("CR or LF alone near %q", b[max(0, i-20):min(len(b), i+20)])
	}
	return string(b[:i]), b[i+2:], nil
}

func (r *Request) parse(b []byte) (rest []byte, err error) {
	text, b, err := line(b)
	if err != nil {
		return nil, err
	}
	m := requestLine.FindStringSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("request line %q", text)
	}
	r.Method, r.Target = m[1], m[2]
	if r.Fields, b, err = fields(b); err != nil {
		return nil, err
	}
	return r.body(b)
}

// fields reads field lines up to the empty one.
func fields(b []byte) (list [][2]string, rest []byte, err error) {
	for {
		var text string
		if text, b, err = line(b); err != nil || text == "" {
			return list, b, err
		}
		m := fieldLine.FindStringSubmatch(latin1(text))
		if m == nil {
			return list, nil, fmt.Errorf("field line %q", text)
		}
		list = append(list, [2]string{strings.ToLower(m[1]), m[2]})
	}
}

// latin1 returns a text whose characters are the bytes of s: regular expressions know no others.
func latin1(s string) string {
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

// body reads the content, by the one field that delimits it.
func (r *Request) body(b []byte) (rest []byte, err error) {
	count := map[string]int{}
	for _, f := range r.Fields {
		count[f[0]]++
	}
	if count["host"] != 1 || count["content-length"]+count["transfer-encoding"] > 1 {
		return nil, fmt.Errorf("%d fields Host, %d Content-Length, %d Transfer-Encoding", count["host"], count["content-length"], count["transfer-encoding"])
	}
	if coding, ok := r.Field("transfer-encoding"); ok {
		if coding != "chunked" {
			return nil, fmt.Errorf("transfer coding %q", coding)
		}
		return r.chunks(b)
	}
	n := 0
	if text, ok := r.Field("content-length"); ok {
		if !length.MatchString(text) {
			return nil, fmt.Errorf("Content-Length %q", text)
		}
		n, _ = strconv.Atoi(text)
	}
	if len(b) < n {
		return nil, errShort
	}
	r.Content = string(b[:n])
	return b[n:], nil
}

func (r *Request) chunks(b []byte) (rest []byte, err error) {
	for {
		text, after, err := line(b)
		if err != nil {
			return nil, err
		}
		if !chunkLine.MatchString(text) {
			return nil, fmt.Errorf("size of a chunk %q", text)
		}
		n, _ := strconv.ParseInt(text, 16, 64)
		b = after
		if n == 0 {
			r.Trailers, b, err = fields(b)
			return b, err
		}
		if int64(len(b)) < n+2 {
			return nil, errShort
		}
		if string(b[n:n+2]) != "\r\n" {
			return nil, fmt.Errorf("a chunk of %d bytes is longer", n)
		}
		r.Content += string(b[:n])
		b = b[n+2:]
	}
}

// Check compares what a back end received, on each of its connections, with what it may receive of the case.
func (c *Case) Check(connections ...[]byte) error {
	whole, contents := 0, ""
	for _, b := range connections {
		requests, err := Parse(b)
		if err != nil {
			return fmt.Errorf("ambiguous: %w", err)
		}
		for _, r := range requests {
			if strings.HasPrefix(r.Target, "/smuggled") {
				return fmt.Errorf("%s %s was smuggled", r.Method, r.Target)
			}
			if contents += r.Content; r.Whole {
				whole++
			}
		}
	}
	most := max(1, strings.Count(c.Bytes, " HTTP/1."))
	if c.Passed == Either && whole > most || c.Passed != Either && whole != c.Passed {
		return fmt.Errorf("%d whole requests, want %d", whole, c.Passed)
	}
	all := strings.ToLower(string(bytes.Join(connections, nil)) + contents)
	for _, text := range c.Absent {
		if strings.Contains(all, text) {
			return fmt.Errorf("%q was passed on", text)
		}
	}
	for _, text := range c.Present {
		if whole > 0 && !strings.Contains(all, text) {
			return fmt.Errorf("%q was not passed on", text)
		}
	}
	return nil
}
