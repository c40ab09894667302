package applayer

import (
	"bytes"

	"github.com/millrace/millrace/filter/signature"
)

// sshFlow is the banners of both directions.
type sshFlow struct {
	stateless
	sides [2]sshSide
}

// sshSide is the banner of one side, up to the end of its line.
type sshSide struct {
	text []byte
	done bool
}

// maxBanner bounds the inspected part of a banner of SSH: longer ones are against RFC 4253 4.2.
const maxBanner = 256

// Parse reads the banner: SSH-protoversion-softwareversion SP comments CR LF (RFC 4253 4.2).
func (f *sshFlow) Parse(c *Context, text []byte) {
	s := &f.sides[c.side()]
	if s.done {
		return
	}
	s.text = append(s.text, text...)
	s.text = s.text[:min(len(s.text), maxBanner)]
	line, _, ok := bytes.Cut(s.text, []byte{'\n'})
	if !ok && len(s.text) < maxBanner {
		return
	}
	s.done = true
	line = bytes.TrimRight(line, "\r")
	rest, ok := bytes.CutPrefix(line, []byte("SSH-"))
	version, software, ok2 := bytes.Cut(rest, []byte{'-'})
	if !ok || !ok2 {
		return
	}
	software, _, _ = bytes.Cut(software, []byte{' '})
	m := c.Message
	m.Reset()
	m.Put(signature.SSHProto, version)
	m.Put(signature.SSHSoftware, software)
	m.Text = line
	c.inspect()
	s.text = nil
}

// Size implements Parser.
func (f *sshFlow) Size() int { return cap(f.sides[0].text) + cap(f.sides[1].text) }
