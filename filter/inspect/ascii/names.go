package ascii

import (
	"bytes"
	"io"
	"mime"
	"slices"
	"strconv"
)

// A sender can give a file several names, of which recipients take different ones, and so other parameters several values. A rule sees each:
//
//   - filename, the first and others,
//   - filename*, with a charset and percent-encoding (RFC 8187 3.2, RFC 2231 4), which comes before filename where it is known,
//   - filename*0, filename*1 and so on, which are put together (RFC 2231 3), encoded or not,
//   - encoded words (RFC 2047 2), which parsers for mail decode.

const (
	maxNames  = 8  // of a file
	maxPieces = 64 // of a name: a file system's longest, encoded, in lines of mail
)

// AppendReadings appends the values that recipients may read of a parameter of a field, such as filename of Content-Disposition, to those
// that are known already. At most 8 are kept.
func AppendReadings(names [][]byte, field []byte, parameter string) [][]byte {
	add := func(name []byte) {
		same := func(o []byte) bool { return bytes.Equal(o, name) }
		if len(name) > 0 && len(names) < maxNames && !slices.ContainsFunc(names, same) {
			names = append(names, bytes.Clone(name))
		}
	}
	var pieces map[int][]byte
	for key, text := range Parameters(field) {
		if len(key) < len(parameter) || !EqualFold(key[:len(parameter)], []byte(parameter)) {
			continue
		}
		switch star := key[len(parameter):]; {
		case len(star) == 0:
			add(text)
			add(withoutWords(text))
		case string(star) == "*":
			add(extended(text))
		case star[0] == '*':
			number, encoded := bytes.CutSuffix(star[1:], []byte{'*'})
			n, err := strconv.Atoi(string(number))
			if _, known := pieces[n]; known || err != nil || n < 0 || n >= maxPieces {
				continue
			}
			if pieces == nil {
				pieces = map[int][]byte{}
			}
			pieces[n] = piece(text, n, encoded)
		}
	}
	if pieces != nil {
		var whole []byte
		for n := range maxPieces {
			whole = append(whole, pieces[n]...)
		}
		add(whole)
		add(withoutWords(whole))
	}
	return names
}

// piece returns a part of a name (RFC 2231 3 and 4.1). The charset is in front of the first.
func piece(text []byte, n int, encoded bool) []byte {
	switch {
	case encoded && n == 0:
		return extended(text)
	case encoded:
		return URLDecode(bytes.Clone(text), false)
	}
	return bytes.Clone(text)
}

// extended decodes a value with charset and language, or without (RFC 8187 3.2.1). Charsets other than UTF-8 stay as they are: names
// in rules are ASCII.
func extended(text []byte) []byte {
	if i := bytes.LastIndexByte(text, '\''); i >= 0 {
		text = text[i+1:]
	}
	return URLDecode(bytes.Clone(text), false)
}

// withoutWords decodes encoded words, of each charset as of one that has ASCII in it; nil where there are none.
func withoutWords(text []byte) []byte {
	if !bytes.Contains(text, []byte("=?")) {
		return nil
	}
	d := mime.WordDecoder{CharsetReader: func(_ string, text io.Reader) (io.Reader, error) { return text, nil }}
	s, err := d.DecodeHeader(string(text))
	if err != nil {
		return nil
	}
	return []byte(s)
}
