package signature

import "slices"

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
}

// choose returns a reader that makes b the buffer of what follows.
func choose(b Buffer) func(p *ruleParser) error {
	return func(p *ruleParser) error {
		p.buffer, p.transforms, p.last = b, nil, nil
		return nil
	}
}
