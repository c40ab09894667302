package http1

import (
	"bytes"
	"strings"
)

// keepSpelling keeps the name of a field line as its sender wrote it, before splitField changes it.
func (m *Machine) keepSpelling(line []byte) {
	if i := bytes.IndexByte(line, ':'); i > 0 {
		m.message.Spellings = append(m.message.Spellings, string(line[:i]))
	}
}

// spell writes the names of a header section, which are in lower case, as spellings has them. Other names, which the gateway adds or
// HTTP/2 has in lower case only, begin each word with a capital letter. header begins with the start line, and a name keeps its
// length.
func spell(header []byte, spellings []string) {
	for {
		end := bytes.IndexByte(header, '\n')
		if header = header[end+1:]; end < 0 {
			return
		}
		i := bytes.IndexByte(header, ':')
		if i < 0 {
			return // the empty line at the end
		}
		spellName(header[:i], spellings)
	}
}

func spellName(name []byte, spellings []string) {
	for _, s := range spellings {
		if len(s) == len(name) && strings.EqualFold(s, text(name)) {
			copy(name, s)
			return
		}
	}
	first := true
	for i, c := range name {
		if first && c >= 'a' && c <= 'z' {
			name[i] = c - 'a' + 'A'
		}
		first = c == '-'
	}
}
