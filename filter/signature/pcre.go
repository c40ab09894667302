package signature

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/filter/regex"
)

// Pattern is a regular expression.
type Pattern struct {
	Source   string // with its options, as written
	Regex    *regex.Regex
	Not      bool
	Relative bool // R: it begins where the test before it ended, and "^" means there
}

// pcreBuffers are the options that name a buffer.
var pcreBuffers = map[byte]Buffer{
	'U': HTTPURI, 'I': HTTPURIRaw, 'P': HTTPRequestBody, 'Q': HTTPResponseBody, 'H': HTTPHeader,
	'D': HTTPHeaderRaw, 'M': HTTPMethod, 'C': HTTPCookie, 'S': HTTPStatCode, 'Y': HTTPStatMsg, 'V': HTTPUserAgent,
	'W': HTTPHost, 'Z': HTTPHostRaw,
}

// pcre reads [!]"/EXPRESSION/OPTIONS".
func (p *ruleParser) pcre(v string) error {
	text, not, at, err := unquoted(v)
	if err != nil {
		return err
	}
	body, ok := strings.CutPrefix(text, "/")
	end := strings.LastIndexByte(body, '/')
	if !ok || end < 0 {
		return wrongAt(at, "an expression stands between slashes: /.../")
	}
	t := &Pattern{Source: text, Not: not}
	var flags regex.Flags
	buffer, transforms := p.buffer, p.transforms
	for i := end + 1; i < len(body); i++ {
		b, isBuffer := pcreBuffers[body[i]]
		switch c := body[i]; {
		case isBuffer:
			buffer, transforms = b, nil
		case c == 'R':
			t.Relative = true
		case c == 'B', c == 'O': // raw bytes; no limit of steps: both are so here
		case strings.IndexByte("imsxAEG", c) >= 0:
			flags |= regex.FlagOf(c)
		default:
			return wrongAt(at+1+i, "option %q of the expression is not known", string(c))
		}
	}
	t.Regex, err = regex.Compile(strings.ReplaceAll(body[:end], `\/`, "/"), flags)
	if err != nil {
		var u *regex.UnsupportedError
		if errors.As(err, &u) {
			return wrongAt(at+1+min(u.At, end), "%w", unsupported{"pcre " + u.What})
		}
		var s *regex.SyntaxError
		if errors.As(err, &s) {
			return wrongAt(at+1+min(s.At, end), "%w", err)
		}
		return fmt.Errorf("pcre: %w", err)
	}
	was, wasT := p.buffer, p.transforms
	p.buffer, p.transforms = buffer, transforms
	p.add(Test{Kind: TestPattern, Pattern: t})
	p.buffer, p.transforms = was, wasT
	p.last = nil
	return nil
}
