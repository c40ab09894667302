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

// filePart is a part of a multipart body.
type filePart struct{ name, data []byte }

// files fills the buffers of the files in a body of HTTP: each part of a multipart one (RFC 7578 4), or all of it.
func (m *Message) files(t *applayer.Message, body []byte) {
	parts := m.parts(body)
	if parts == nil {
		t.Put(signature.FileData, body)
		t.Put(signature.FileName, m.fileName())
		return
	}
	named := false
	for _, part := range parts {
		named = named || part.name != nil
	}
	for _, part := range parts {
		t.Put(signature.FileData, part.data)
		if named { // the name of a file has its place
			t.Put(signature.FileName, append([]byte{}, part.name...))
		}
	}
}

// Boundary returns the boundary of a multipart body; nil of another one.
func (m *Message) Boundary() []byte {
	kind := m.Value("content-type")
	if len(kind) < len("multipart/") || !ascii.EqualFold(kind[:len("multipart/")], []byte("multipart/")) {
		return nil
	}
	return ascii.Parameter(kind, "boundary")
}

// parts returns the parts of a multipart body (RFC 2046 5.1.1), the last perhaps incomplete; nil of another one.
func (m *Message) parts(body []byte) (parts []filePart) {
	boundary := m.Boundary()
	if len(boundary) == 0 {
		return nil
	}
	delimiter := append([]byte("--"), boundary...)
	rest, ok := behindDelimiter(body, delimiter)
	for ok && len(rest) > 0 && len(parts) < maxMultipart {
		var part filePart
		end := ascii.HeadEnd(rest, 0)
		if len(rest) > 1 && (rest[0] == '\n' || rest[0] == '\r' && rest[1] == '\n') { // no head
			end = 1 + bytes.IndexByte(rest, '\n')
		}
		if end < 0 {
			break
		}
		head := ParseHead(append([]byte("part\r\n"), rest[:end]...))
		if name := ascii.Parameter(head.Value("content-disposition"), "filename"); len(name) > 0 {
			part.name = bytes.Clone(name)
		}
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

// fileName returns the name of the file in a message: of Content-Disposition (RFC 6266 4.3), or the path of the request.
func (m *Message) fileName() []byte {
	if name := ascii.Parameter(m.Value("content-disposition"), "filename"); len(name) > 0 {
		return name
	}
	if m.File != nil {
		return m.File
	}
	return PathOf(m.URI)
}
