package convert

import (
	"path/filepath"
	"slices"
	"strings"
)

// token is a word of a source and its place.
type token struct {
	text   string
	quoted bool
	at     pos
}

// directive is a command of nginx: a name, arguments, and a block or none.
type directive struct {
	name  string
	args  []token
	block []*directive
	open  bool // it has a block
	at    pos
}

// arg returns the text of an argument, "" where there are fewer.
func (d *directive) arg(i int) string {
	if i < len(d.args) {
		return d.args[i].text
	}
	return ""
}

// texts returns all arguments.
func (d *directive) texts() []string {
	out := make([]string, len(d.args))
	for i, a := range d.args {
		out[i] = a.text
	}
	return out
}

// has reports whether an argument is there.
func (d *directive) has(word string) bool { return slices.Contains(d.texts(), word) }

// text returns the directive as the report has it.
func (d *directive) text() string {
	s := strings.Join(append([]string{d.name}, d.texts()...), " ")
	if d.open {
		s += " {}"
	}
	return s
}

// nginxParser reads one file of nginx's language. Files that it includes are read by parsers of their own into the same blocks.
type nginxParser struct {
	s    *source
	l    *ledger
	file int
	text string
	at   int
	line int
	col  int
	by   *inclusion
}

// optionalIncludes are files of nginx's packages whose content is not needed.
var optionalIncludes = []string{"mime.types", "fastcgi_params", "fastcgi.conf", "fastcgi-php.conf", "uwsgi_params", "scgi_params", "koi-utf", "koi-win", "win-utf"}

// parseNginx returns the directives of a file.
func parseNginx(s *source, l *ledger, file int, by *inclusion) []*directive {
	return parseNginxAt(s, l, file, by, 0)
}

func parseNginxAt(s *source, l *ledger, file int, by *inclusion, depth int) []*directive {
	p := &nginxParser{s: s, l: l, file: file, text: s.files[file].text, line: 1, col: 1, by: by}
	list, _ := p.block(depth, pos{})
	return list
}

func (p *nginxParser) pos() pos { return pos{p.file, p.line, p.col} }

// next returns the current byte, 0 at the end.
func (p *nginxParser) next() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

// skip goes one byte on. Columns are in characters, so that bytes within one do not count.
func (p *nginxParser) skip() {
	switch c := p.text[p.at]; {
	case c == '\n':
		p.line, p.col = p.line+1, 1
	case c&0xc0 != 0x80:
		p.col++
	}
	p.at++
}

// blanks goes to the next token.
func (p *nginxParser) blanks() {
	for p.at < len(p.text) {
		switch c := p.next(); {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			p.skip()
		case c == '#':
			for p.at < len(p.text) && p.next() != '\n' {
				p.skip()
			}
		default:
			return
		}
	}
}

// word reads a token: quoted, or up to a blank, a semicolon or a brace. "${" belongs to a word with what is in its braces.
func (p *nginxParser) word() token {
	t := token{at: p.pos()}
	if q := p.next(); q == '"' || q == '\'' {
		t.quoted = true
		p.skip()
		var b strings.Builder
		for p.at < len(p.text) && p.next() != q {
			if p.next() == '\\' && p.at+1 < len(p.text) {
				p.skip()
				switch c := p.next(); c { // nginx keeps other escapes as they are, for regular expressions
				case '"', '\'', '\\':
					b.WriteByte(c)
				case 'n':
					b.WriteByte('\n')
				case 't':
					b.WriteByte('\t')
				case 'r':
					b.WriteByte('\r')
				default:
					b.WriteByte('\\')
					b.WriteByte(c)
				}
				p.skip()
				continue
			}
			b.WriteByte(p.next())
			p.skip()
		}
		if p.at >= len(p.text) {
			p.s.fail(t.at, "add "+string(q)+" at the end", "the quotes are not closed")
		} else {
			p.skip()
		}
		t.text = b.String()
		return t
	}
	start := p.at
	for p.at < len(p.text) {
		c := p.next()
		switch {
		case c == '$' && p.at+1 < len(p.text) && p.text[p.at+1] == '{':
			for p.at < len(p.text) && p.next() != '}' && p.next() != '\n' && p.next() != ';' {
				p.skip()
			}
			continue
		case c == '\\' && p.at+1 < len(p.text):
			p.skip()
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ';' || c == '{':
			t.text = p.text[start:p.at]
			return t
		case c == '}' && p.at == start:
			return t
		}
		p.skip()
	}
	t.text = p.text[start:p.at]
	return t
}

// block reads directives to the brace that closes the block, or to the end of the file.
func (p *nginxParser) block(depth int, opened pos) (list []*directive, ok bool) {
	for {
		p.blanks()
		switch {
		case p.at >= len(p.text):
			if opened.line > 0 {
				p.s.fail(opened, "add } at the end of the block", "the block is not closed")
				return list, false
			}
			return list, true
		case p.next() == '}':
			if opened.line == 0 {
				p.s.fail(p.pos(), "leave it out", "there is no block that } closes")
				p.skip()
				continue
			}
			p.skip()
			return list, true
		}
		d := p.directive(depth)
		if d == nil {
			return list, false
		}
		if d.name == "include" && !d.open && len(d.args) == 1 {
			list = append(list, p.included(d, depth)...)
			continue
		}
		list = append(list, d)
	}
}

// directive reads one directive; nil after an error that nothing can be read behind.
func (p *nginxParser) directive(depth int) *directive {
	first := p.word()
	d := &directive{name: first.text, at: first.at}
	if !p.s.count(d.at) {
		return nil
	}
	if first.text == "" && !first.quoted {
		p.s.fail(d.at, "", "a directive begins with a name, not with %q", string(rune(p.next())))
		p.skip()
		return d
	}
	if strings.HasSuffix(d.name, "_by_lua_block") {
		return p.lua(d)
	}
	for {
		p.blanks()
		switch c := p.next(); {
		case p.at >= len(p.text):
			p.s.fail(d.at, "end it with a semicolon", "%s has no end", shorten(d.name))
			return nil
		case c == ';':
			p.skip()
			p.l.enter(d.at, d.text())
			return d
		case c == '}':
			p.s.fail(p.pos(), "end the directive with a semicolon", "} stands within %s, which begins on line %d", shorten(d.name), d.at.line)
			return d
		case c == '{':
			d.open = true
			p.l.enter(d.at, d.text())
			if depth >= maxNesting {
				p.s.fail(d.at, "", "blocks are nested more than %d deep", maxNesting)
				return nil
			}
			opened := p.pos()
			p.skip()
			var ok bool
			if d.block, ok = p.block(depth+1, opened); !ok {
				return nil
			}
			return d
		}
		d.args = append(d.args, p.word())
	}
}

// lua skips a block in another language, whose braces are balanced.
func (p *nginxParser) lua(d *directive) *directive {
	d.open = true
	p.l.enter(d.at, d.text())
	depth := 0
	for p.at < len(p.text) {
		switch p.next() {
		case '{':
			depth++
		case '}':
			if depth--; depth <= 0 {
				p.skip()
				return d
			}
		}
		p.skip()
	}
	p.s.fail(d.at, "", "the block is not closed")
	return nil
}

// included returns the directives of the files that an include names.
func (p *nginxParser) included(d *directive, depth int) (list []*directive) {
	found := p.s.include(d.at, p.by, d.arg(0), func(n int, by *inclusion) {
		if slices.Contains(optionalIncludes, filepath.Base(by.path)) {
			return // types and names of FastCGI: the gateway has its own
		}
		list = append(list, parseNginxAt(p.s, p.l, n, by, depth)...)
	})
	switch {
	case slices.Contains(optionalIncludes, filepath.Base(d.arg(0))):
		p.l.unneeded(d.at, "the gateway has types and variables of its own")
	case found:
		p.l.ok(d.at, "")
	default:
		p.l.left(d.at, "the file is not here", "convert where it is, or copy it beside the file")
	}
	return list
}
