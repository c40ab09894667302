package signature

import (
	"fmt"
	"slices"
	"strings"
)

// Transform changes a buffer before its contents are looked for.
type Transform uint8

// The transforms.
const (
	DotPrefix          Transform = iota // "." before the bytes
	StripWhitespace                     // without white space
	CompressWhitespace                  // runs of white space as one blank
	ToLower
	ToUpper
	ToMD5
	ToSHA1
	ToSHA256
	URLDecode
	HeaderLowercase // names of headers in lower case
	StripPseudo     // without pseudo headers of HTTP/2
	FromBase64      // decoded as base64, up to the first byte that is none
)

var transforms = map[string]Transform{
	"dotprefix": DotPrefix, "strip_whitespace": StripWhitespace, "compress_whitespace": CompressWhitespace,
	"to_lowercase": ToLower, "to_uppercase": ToUpper, "to_md5": ToMD5, "to_sha1": ToSHA1, "to_sha256": ToSHA256,
	"url_decode": URLDecode, "header_lowercase": HeaderLowercase, "strip_pseudo_headers": StripPseudo,
}

// bufferKeywords are those that choose the buffer of the contents behind them, or before them.
func bufferKeywords(bare addBare) {
	for b := HTTPURI; b < Buffers; b++ {
		bare(b.String(), choose(b))
	}
	for name, b := range stickyNames {
		bare(name, choose(b))
	}
	for name, b := range modifierNames {
		bare(name, func(p *ruleParser) error { return p.moveTo(b) })
	}
	for name, t := range transforms {
		bare(name, func(p *ruleParser) error {
			p.transforms = append(slices.Clone(p.transforms), t)
			return nil
		})
	}
	keywords["absent"] = keyword{read: (*ruleParser).absent}
	keywords["from_base64"] = keyword{read: (*ruleParser).fromBase64}
}

// absent makes the rule match where there is no buffer of now. absent:or_else is followed by tests for where there is one.
func (p *ruleParser) absent(v string) error {
	i := p.part(p.buffer, p.transforms)
	switch {
	case p.buffer.OfPacket():
		return fmt.Errorf("absent stands behind the name of a buffer")
	case len(p.transforms) > 0 || len(p.rule.Parts[i].Tests) > 0:
		return fmt.Errorf("absent stands right behind the name of its buffer")
	case v != "" && v != "or_else":
		return fmt.Errorf("absent does not know %q: say or_else, or nothing", v)
	}
	p.rule.Parts[i].Absent, p.rule.Parts[i].OrElse, p.last = true, v != "", nil
	return nil
}

// fromBase64 reads nothing, or the mode that is implemented.
func (p *ruleParser) fromBase64(v string) error {
	if v != "" && strings.Join(strings.Fields(v), " ") != "mode rfc4648" {
		return unsupported{"from_base64:" + v}
	}
	p.transforms = append(slices.Clone(p.transforms), FromBase64)
	return nil
}

// choose returns a reader that makes b the buffer of what follows.
func choose(b Buffer) func(p *ruleParser) error {
	return func(p *ruleParser) error {
		p.buffer, p.transforms, p.last, p.lastPart = b, nil, nil, -1
		return nil
	}
}
