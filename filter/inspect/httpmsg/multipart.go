package httpmsg

import (
	"bytes"

	"github.com/millrace/millrace/filter/inspect/applayer"
	"github.com/millrace/millrace/filter/inspect/ascii"
	"github.com/millrace/millrace/filter/signature"
)

// maxMultipart bounds the parts of a body that are files of their own: each is an instance of a buffer that all rules on it are
// evaluated on. What follows them is one more, so that the bound hides nothing.
const maxMultipart = 256

// filePart is a part of a multipart body, with the names that recipients may read.
type filePart struct {
	names [][]byte
	data  []byte
}

// files fills the buffers of the files in a body of HTTP: each part of a multipart one (RFC 7578 4), or all of it. Of several
// boundaries recipients take another one each.
func (m *Message) files(t *applayer.Message, body []byte) {
	boundaries := m.Boundaries()
	var parts []filePart
	for _, b := range boundaries {
		parts = append(parts, partsOf(body, b)...)
	}
	switch {
	case parts == nil:
		parts = append(parts, filePart{data: body, names: m.fileNames()})
	case len(boundaries) > 1: // what is between the parts of one may be in those of another
		parts = append(parts, filePart{data: body})
	}
	named := false
	for i := range parts {
		named = named || len(parts[i].names) > 0
	}
	for i := range parts {
		part := &parts[i]
		if !named {
			t.Put(signature.FileData, part.data)
			continue
		}
		if len(part.names) == 0 {
			part.names = [][]byte{{}}
		}
		for _, name := range part.names { // the name of a file has its place
			t.Put(signature.FileData, part.data)
			t.Put(signature.FileName, name)
		}
	}
}

// maxBoundaries bounds the boundaries of a body, each of which is searched.
const maxBoundaries = 4

// Boundaries returns the boundary of a multipart body, or several that recipients may take for it; nil of another body.
func (m *Message) Boundaries() (list [][]byte) {
	kind := m.Value("content-type")
	if len(kind) < len("multipart/") || !ascii.EqualFold(kind[:len("multipart/")], []byte("multipart/")) {
		return nil
	}
	add := func(b []byte) {
		if len(b) > 0 && !contains(list, b) && len(list) < maxBoundaries {
			list = append(list, b)
		}
	}
	for key, b := range ascii.Parameters(kind) {
		if ascii.IsWord(key, "boundary") {
			add(b)
			first, _, _ := bytes.Cut(b, []byte{','}) // another line follows
			add(first)
		}
	}
	return list
}

// partsOf returns the parts of a multipart body (RFC 2046 5.1.1), the last perhaps incomplete; nil of another one.
func partsOf(body, boundary []byte) (parts []filePart) {
	delimiter := append([]byte("--"), boundary...)
	rest, ok := behindDelimiter(body, delimiter)
	for ok && len(rest) > 0 && len(parts) < maxMultipart {
		var part filePart
		end := ascii.HeadEnd(rest, 0)
		if len(rest) > 1 && (rest[0] == '\n' || rest[0] == '\r' && rest[1] == '\n') { // no head
			end = 1 + bytes.IndexByte(rest, '\n')
		}
		if end < 0 { // a head that the next delimiter ends is that of an empty part
			next, ends := behindDelimiter(rest, delimiter)
			if !ends {
				break
			}
			end = bytes.LastIndex(rest[:len(rest)-len(next)], delimiter)
		}
		head := ParseHead(append([]byte("part\r\n"), rest[:end]...))
		part.names = namesOf(head.Value("content-disposition"))
		part.data = rest[end:]
		rest, ok = behindDelimiter(part.data, delimiter)
		if ok {
			part.data = part.data[:len(part.data)-len(rest)]
			part.data = part.data[:bytes.LastIndex(part.data, delimiter)]
			part.data = bytes.TrimSuffix(bytes.TrimSuffix(part.data, []byte{'\n'}), []byte{'\r'})
		}
		parts = append(parts, part)
	}
	if ok && len(parts) == maxMultipart && len(rest) > 0 {
		parts = append(parts, filePart{data: rest})
	}
	return parts
}

// behindDelimiter returns what follows the line of the next delimiter; ok is false without one. Nothing follows the last.
func behindDelimiter(b, delimiter []byte) (rest []byte, ok bool) {
	for from := 0; ; {
		at := bytes.Index(b[from:], delimiter)
		if at < 0 {
			return nil, false
		}
		at += from
		from = at + len(delimiter)
		if at > 0 && b[at-1] != '\n' {
			continue
		}
		if bytes.HasPrefix(b[from:], []byte("--")) {
			return b[len(b):], true
		}
		end := bytes.IndexByte(b[from:], '\n')
		if end < 0 || len(bytes.TrimSpace(b[from:from+end])) > 0 {
			continue
		}
		return b[from+end+1:], true
	}
}

// fileNames returns the names of the file in a message: of Content-Disposition (RFC 6266 4.3), or the path of the request.
func (m *Message) fileNames() [][]byte {
	if names := namesOf(m.Value("content-disposition")); len(names) > 0 {
		return names
	}
	name := m.File
	if name == nil {
		name = PathOf(m.URI)
	}
	if name == nil {
		return nil
	}
	return [][]byte{name}
}
