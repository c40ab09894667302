package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/millrace/http1"
	"github.com/millrace/millrace/semantics"
)

// TestLLHTTPSuite feeds package http1 the messages of llhttp's own tests (test/ of its repository; `make llhttp` fetches
// them). What llhttp refuses in its strict mode must be refused, and the content of what both accept must be the same.
// stricter names what is refused here alone, with the reason; one of them that is accepted is a failure too.
func TestLLHTTPSuite(t *testing.T) {
	dir := os.Getenv("MILLRACE_LLHTTP")
	if dir == "" {
		t.Skip("MILLRACE_LLHTTP names no folder of tests; make llhttp fetches them")
	}
	ran := 0
	for _, kind := range []string{"request", "response"} {
		files, err := filepath.Glob(filepath.Join(dir, kind, "*.md"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			name := strings.TrimSuffix(filepath.Base(file), ".md")
			for _, c := range llhttpCases(string(text)) {
				if c.kind != kind {
					continue // of a lenient mode
				}
				ran++
				t.Run(kind+"/"+name+"/"+c.name, func(t *testing.T) { c.run(t) })
			}
		}
	}
	if ran < 100 {
		t.Errorf("%d cases in %s", ran, dir)
	}
}

// llhttpCase is a message and what llhttp reports of it.
type llhttpCase struct{ name, kind, meta, input, log string }

var (
	llhttpBlock   = regexp.MustCompile("(?s)\n#+ ([^\n]+)\n(?:[^#]|#[^# ])*?<!-- meta=(\\{[^\n]*\\}) -->\n```http\n(.*?)\n```\n(?:[^`]|`[^`\n]+`)*```log\n(.*?)```")
	llhttpError   = regexp.MustCompile(`error code=(\d+)`)
	llhttpVersion = regexp.MustCompile(` HTTP/1\.1\r\n`)
	llhttpType    = regexp.MustCompile(`"type": *"([a-z-]+)"`)
	llhttpBody    = regexp.MustCompile(`span\[body\]="(.*)"`)
	llhttpHex     = regexp.MustCompile(`\\x([0-9a-fA-F]+)`)
	llhttpOctal   = regexp.MustCompile(`\\([0-7]{1,3})`)
	llhttpRepeat  = regexp.MustCompile(`\$\{'(.*?)'\.repeat\((\d+)\)\}`)
	llhttpNewline = regexp.MustCompile(`\r\n|\r|\n`)
)

// llhttpCases reads a file of cases.
func llhttpCases(text string) (cases []llhttpCase) {
	for _, m := range llhttpBlock.FindAllStringSubmatch("\n"+text, -1) {
		c := llhttpCase{name: m[1], meta: m[2], input: llhttpInput(m[3]), log: m[4]}
		if kind := llhttpType.FindStringSubmatch(c.meta); kind != nil {
			c.kind = kind[1]
		}
		cases = append(cases, c)
	}
	return cases
}

// llhttpInput resolves the escapes of an input: line ends are CRLF, and everything else is written out.
func llhttpInput(s string) string {
	s = regexp.MustCompile(`\\(\r\n|\r|\n)`).ReplaceAllString(s, "")
	s = llhttpNewline.ReplaceAllString(s, "\r\n")
	s = strings.NewReplacer(`\r`, "\r", `\n`, "\n", `\t`, "\t", `\f`, "\f").Replace(s)
	s = llhttpHex.ReplaceAllStringFunc(s, func(e string) string {
		n, _ := strconv.ParseUint(e[2:], 16, 8)
		return string([]byte{byte(n)})
	})
	s = llhttpOctal.ReplaceAllStringFunc(s, func(e string) string {
		n, _ := strconv.ParseUint(e[1:], 8, 8)
		return string([]byte{byte(n)})
	})
	return llhttpRepeat.ReplaceAllStringFunc(s, func(e string) string {
		m := llhttpRepeat.FindStringSubmatch(e)
		n, _ := strconv.Atoi(m[2])
		return strings.Repeat(m[1], n)
	})
}

// run compares one case.
func (c *llhttpCase) run(t *testing.T) {
	if !strings.Contains(strings.ToLower(c.input), "host:") { // most requests of the suite have none
		c.input = llhttpVersion.ReplaceAllString(c.input, "${0}Host: a\r\n")
	}
	refused := c.refused()
	ours, err := c.parse(c.input, refused || strings.Contains(c.log, "finish="))
	reason := stricter[c.name] + stricter[c.kind+": "+c.name] // some names occur twice
	switch {
	case refused && err == nil && lenient[c.name] == "":
		t.Errorf("llhttp refuses it, and it is accepted here:\n%q\n%s", c.input, c.log)
	case !refused && err != nil && reason == "":
		t.Errorf("llhttp accepts it, and it is refused here: %v\n%q", err, c.input)
	case !refused && err == nil && reason != "":
		t.Errorf("it is accepted, and is listed as one that is not: %s", reason)
	case !refused && err == nil:
		theirs := ""
		for _, m := range llhttpBody.FindAllStringSubmatch(c.log, -1) {
			theirs += strings.NewReplacer(`\r`, "", `\n`, "", `\"`, `"`).Replace(m[1]) // line ends are left out at the end of a span
		}
		if theirs != ours && !strings.Contains(c.meta, "skipBody") {
			t.Errorf("llhttp reads %q, and %q is read here:\n%q", theirs, ours, c.input)
		}
	}
}

// refused reports whether llhttp refuses the message. It has codes for a pause too, and for bytes after the last message,
// which are not read here either.
func (c *llhttpCase) refused() bool {
	m := llhttpError.FindStringSubmatch(c.log)
	return m != nil && m[1] != "5" && m[1] != "21" && m[1] != "22" && m[1] != "23"
}

// parse feeds a machine all messages of the input, and returns their content.
func (c *llhttpCase) parse(input string, fin bool) (content string, err error) {
	role := http1.RoleServer
	if c.kind == "response" {
		role = http1.RoleClient
	}
	m := http1.NewMachine(role, http1.Options{})
	in := []byte(input)
	for {
		if role == http1.RoleClient && m.Idle() && len(in) > 0 {
			if _, err := m.AppendRequest(nil, &semantics.Message{Method: "GET", Authority: "a", Path: "/", Protocol: "any", ContentLength: -1}, true); err != nil {
				return "", err
			}
		}
		ev, n, err := m.Input(in, fin)
		if err != nil {
			return content, err
		}
		in = in[n:]
		switch ev.Kind {
		case http1.Data:
			if !m.Tunnel() {
				content += strings.NewReplacer("\r", "", "\n", "", `\"`, `"`).Replace(string(ev.Payload))
			}
		case http1.End:
			if role == http1.RoleServer && !m.Tunnel() {
				if _, err := m.AppendResponse(nil, &semantics.Message{Status: 200, ContentLength: 0}, true); err != nil {
					return content, fmt.Errorf("respond: %w", err)
				}
			}
		case http1.NeedInput:
			return content, nil
		}
	}
}

// Reasons of stricter.
const (
	otherProtocol = "another protocol, or another version, than HTTP/1.0 and 1.1"
	emptyLines    = "more than the one empty line before a request that RFC 9112 2.2 asks for, or one before a response"
	targetForm    = "a target with a fragment, or in a form that its method does not have (RFC 9112 3.2)"
	authorities   = "the authority of the target is not that of Host, or has user information (RFC 9110 4.2.4)"
	withContent   = "CONNECT or Upgrade with content, which the next hop may take for what follows the change of protocol"
	codings       = "a response that is read up to the end of the connection because its last coding is not chunked"
)

// stricter are messages that llhttp accepts and package http1 does not.
var stricter = map[string]string{
	"CRLF between requests, implicit `keep-alive`": emptyLines, "HTTP 304 with Content-Length": emptyLines,
	"HTTP 100 first, then 400": emptyLines, "response: Should parse multiple events": emptyLines, "Response starting with CRLF": emptyLines,
	"Emitting part of body and pausing": withContent, "Upgrade POST request": withContent, "CONNECT with body": withContent,
	"M-SEARCH request": targetForm, "PRI request HTTP2": targetForm, "Fragment in URI": targetForm,
	"POST with `chunked` as last transfer-encoding":                    targetForm,
	"POST with `chunked` as last transfer-encoding (multiple headers)": targetForm,
	"SOURCE request with ICE":                                          otherProtocol, "OPTIONS request with RTSP": otherProtocol, "ANNOUNCE request with RTSP": otherProtocol,
	"No HTTP version": otherProtocol, "RTSP response": otherProtocol, "ICE response": otherProtocol, "HTTP version 0.9": otherProtocol,
	"Host terminated by a query string": authorities, "`host:port` terminated by a query string": authorities,
	"`host:port` terminated by a space": authorities, "`host:port` and basic auth": authorities,
	"`chunked` before other transfer-encoding":                             codings,
	"multiple transfer-encoding where chunked is not the last one":         codings,
	"`chunkedchunked` transfer-encoding does not enable chunked enconding": codings,
}

// lenient are messages that llhttp refuses and package http1 does not.
var lenient = map[string]string{
	"HTTP protocol and ANNOUNCE method": "methods are open (RFC 9110 9.1), and one of RTSP is a token like another",
	"Invalid method":                    "the same",
}
