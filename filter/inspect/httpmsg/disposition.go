package httpmsg

import (
	"bytes"
	"mime"
	"slices"

	"github.com/millrace/millrace/filter/inspect/ascii"
)

// A client can give a file several names, of which recipients take different ones. A rule sees each:
//
//   - filename, the first and others,
//   - filename*, with a charset and percent-encoding (RFC 8187 3.2), which comes before filename where it is known,
//   - filename*0, filename*1 and so on, which are put together (RFC 2231 3), encoded or not,
//   - encoded words (RFC 2047 2), which parsers for mail decode.

// maxNames bounds the names of a file, and the pieces of one.
const maxNames = 8

// namesOf returns the names of a file that a field Content-Disposition has.
func namesOf(disposition []byte) (names [][]byte) {
	if len(disposition) == 0 {
		return nil
	}
	add := func(name []byte) {
		if len(name) > 0 && len(names) < maxNames && !contains(names, name) {
			names = append(names, bytes.Clone(name))
		}
	}
	var pieces [maxNames][]byte
	for key, text := range ascii.Parameters(disposition) {
		if len(key) < len("filename") || !ascii.EqualFold(key[:len("filename")], []byte("filename")) {
			continue
		}
		switch star := key[len("filename"):]; {
		case len(star) == 0:
			add(text)
			add(withoutWords(text))
		case string(star) == "*":
			add(extended(text))
		default:
			encoded := star[len(star)-1] == '*'
			if n, ok := BodyLength(star); ok && star[0] == '*' && n < len(pieces) && pieces[n] == nil {
				if pieces[n] = append([]byte{}, text...); encoded && n == 0 {
					pieces[n] = extended(text)
				} else if encoded {
					pieces[n] = ascii.URLDecode(pieces[n], false)
				}
			}
		}
	}
	add(slices.Concat(pieces[:]...))
	return names
}

// extended decodes a value with charset and language, or without (RFC 8187 3.2.1). Charsets other than UTF-8 stay as they are: names
// in rules are ASCII.
func extended(text []byte) []byte {
	if i := bytes.LastIndexByte(text, '\''); i >= 0 {
		text = text[i+1:]
	}
	return ascii.URLDecode(bytes.Clone(text), false)
}

// withoutWords decodes encoded words; nil where there are none.
func withoutWords(text []byte) []byte {
	if !bytes.Contains(text, []byte("=?")) {
		return nil
	}
	s, err := new(mime.WordDecoder).DecodeHeader(string(text))
	if err != nil {
		return nil
	}
	return []byte(s)
}

func contains(list [][]byte, b []byte) bool {
	return slices.ContainsFunc(list, func(o []byte) bool { return bytes.Equal(o, b) })
}
