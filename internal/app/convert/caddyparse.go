package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// caddyParser reads files of Caddy's language: lines of words, and blocks in braces.
type caddyParser struct {
	s        *source
	l        *ledger
	snippets map[string][]*directive
	total    int // directives, with those that imports repeat
}

// env is a variable of the environment, with what stands for it where it is not set.
var env = regexp.MustCompile(`\{\$[A-Za-z0-9_]+(?::([^{}\n]*))?\}`)

// caddyLine is a line of words.
type caddyLine struct {
	words []token
}

// lines splits a file: quotes of two kinds and heredocs keep what is in them, and # begins a comment.
func (p *caddyParser) lines(file int) (list []caddyLine) {
	text := env.ReplaceAllStringFunc(p.s.files[file].text, func(v string) string {
		m := env.FindStringSubmatch(v)
		if !strings.Contains(v, ":") {
			return v
		}
		return m[1]
	})
	r := []rune(text)
	line, column := 1, 1
	var words []token
	flush := func() {
		if len(words) > 0 {
			list = append(list, caddyLine{words})
			words = nil
		}
	}
	for i := 0; i < len(r); {
		c := r[i]
		step := func(n int) {
			for ; n > 0 && i < len(r); n-- {
				if column++; r[i] == '\n' {
					line, column = line+1, 1
				}
				i++
			}
		}
		at := pos{file, line, column}
		switch {
		case c == '\n':
			flush()
			step(1)
		case c == ' ' || c == '\t' || c == '\r':
			step(1)
		case c == '\\' && i+1 < len(r) && r[i+1] == '\n':
			step(2)
		case c == '#':
			for i < len(r) && r[i] != '\n' {
				step(1)
			}
		case c == '"' || c == '`':
			var b strings.Builder
			step(1)
			for i < len(r) && r[i] != c {
				if c == '"' && r[i] == '\\' && i+1 < len(r) && (r[i+1] == '"' || r[i+1] == '\\') {
					step(1)
				}
				b.WriteRune(r[i])
				step(1)
			}
			if i >= len(r) {
				p.s.fail(at, "add "+string(c)+" at the end", "the quotes are not closed")
			}
			step(1)
			words = append(words, token{b.String(), true, at})
		default:
			start := i
			for i < len(r) && r[i] != ' ' && r[i] != '\t' && r[i] != '\n' && r[i] != '\r' {
				step(1)
			}
			word := string(r[start:i])
			if mark, ok := strings.CutPrefix(word, "<<"); ok && mark != "" {
				word = heredoc(r, &i, mark, step)
			}
			words = append(words, token{word, false, at})
		}
	}
	flush()
	return list
}

// heredoc reads the lines up to the mark, without their common indent.
func heredoc(r []rune, i *int, mark string, step func(int)) string {
	var lines []string
	for *i < len(r) && r[*i] != '\n' {
		step(1)
	}
	step(1)
	for *i < len(r) {
		start := *i
		for *i < len(r) && r[*i] != '\n' {
			step(1)
		}
		text := string(r[start:*i])
		if trimmed := strings.TrimLeft(text, " \t"); strings.HasPrefix(trimmed, mark) {
			indent := text[:len(text)-len(trimmed)]
			for k := range lines {
				lines[k] = strings.TrimPrefix(lines[k], indent)
			}
			break
		}
		lines = append(lines, text)
		step(1)
	}
	return strings.Join(lines, "\n")
}

// block makes directives of lines, up to the brace that closes the block, and returns the lines behind it.
func (p *caddyParser) block(lines []caddyLine, depth int, opened pos) (list []*directive, rest []caddyLine) {
	for len(lines) > 0 {
		words := lines[0].words
		all := len(words)
		lines = lines[1:]
		first := words[0]
		if first.text == "}" && !first.quoted {
			if opened.line == 0 {
				p.s.fail(first.at, "leave it out", "there is no block that } closes")
				continue
			}
			if len(words) > 1 {
				p.s.fail(words[1].at, "begin a new line", "a word stands behind }")
			}
			return list, lines
		}
		if !p.s.count(first.at) {
			return list, nil
		}
		for i, w := range words[:len(words)-1] {
			if w.text == "{" && !w.quoted {
				p.s.fail(w.at, "begin a new line, and write } on a line of its own", "words stand behind {")
				words = words[:i+1]
				break
			}
		}
		if len(words) < all { // of a block in one line nothing else is read
			continue
		}
		d := &directive{name: first.text, at: first.at}
		d.args = words[1:]
		if n := len(words) - 1; words[n].text == "{" && !words[n].quoted {
			d.open = true
			if n == 0 {
				d.name, d.args = "", nil
			} else {
				d.args = words[1:n]
			}
			if depth >= maxNesting {
				p.s.fail(d.at, "", "blocks are nested more than %d deep", maxNesting)
				return list, nil
			}
			p.l.enter(d.at, d.text())
			d.block, lines = p.block(lines, depth+1, words[n].at)
		} else {
			p.l.enter(d.at, d.text())
		}
		list = append(list, d)
	}
	if opened.line > 0 {
		p.s.fail(opened, "add } at the end of the block", "the block is not closed")
	}
	return list, nil
}

// parse returns the directives of a file at its top: sites, snippets and global options.
func (p *caddyParser) parse(file int) []*directive {
	list, _ := p.block(p.lines(file), 0, pos{})
	return list
}

// mostImported bounds the directives that imports make of others.
const mostImported = 50_000

// expand replaces imports in a block by what they name: a snippet, or the directives of files.
func (p *caddyParser) expand(list []*directive, by *inclusion, depth int) (out []*directive) {
	for _, d := range list {
		if p.total++; p.total > mostImported {
			if p.total == mostImported+1 {
				p.s.fail(d.at, "", "imports make more than %d directives", mostImported)
			}
			return out
		}
		if d.name != "import" {
			c := *d
			c.block = p.expand(d.block, by, depth)
			out = append(out, &c)
			continue
		}
		if depth >= maxDepth {
			p.s.fail(d.at, "", "imports are nested more than %d deep", maxDepth)
			return out
		}
		if snippet, ok := p.snippets[d.arg(0)]; ok {
			p.l.ok(d.at, "")
			out = append(out, p.expand(withArgs(snippet, d.texts()[1:]), by, depth+1)...)
			continue
		}
		found := p.s.include(d.at, by, d.arg(0), func(n int, inner *inclusion) {
			out = append(out, p.expand(p.parse(n), inner, depth+1)...)
		})
		if found {
			p.l.ok(d.at, "")
		} else {
			p.l.left(d.at, "there is no such snippet, and the file is not here", "convert where it is, or copy it beside the file")
		}
	}
	return out
}

// withArgs returns directives with the arguments of an import in their places.
func withArgs(list []*directive, args []string) []*directive {
	var pairs []string
	for i, a := range args {
		pairs = append(pairs, fmt.Sprintf("{args[%d]}", i), a, fmt.Sprintf("{args.%d}", i), a)
	}
	if len(pairs) == 0 {
		return list
	}
	return replaced(list, strings.NewReplacer(pairs...))
}

// mostWord bounds a word that arguments are put in: they may hold others.
const mostWord = 8192

func replaced(list []*directive, r *strings.Replacer) (out []*directive) {
	for _, d := range list {
		c := *d
		c.args, c.block = slices.Clone(d.args), replaced(d.block, r)
		for i := range c.args {
			if with := r.Replace(c.args[i].text); len(with) <= mostWord {
				c.args[i].text = with
			}
		}
		out = append(out, &c)
	}
	return out
}
