package convert

import (
	"slices"
	"strings"
)

// line is a keyword of HAProxy with its arguments.
type line struct {
	words []string
	at    pos
}

func (l *line) arg(i int) string {
	if i < len(l.words) {
		return l.words[i]
	}
	return ""
}

// after returns the word behind another, "" for none.
func (l *line) after(word string) string {
	if i := slices.Index(l.words, word); i >= 0 {
		return l.arg(i + 1)
	}
	return ""
}

// name returns the keyword, of two words where the first is common to several.
func (l *line) name() string {
	switch w := l.words[0]; w {
	case "option", "timeout", "stats", "http-check", "tcp-check", "http-request", "http-response", "tcp-request", "tcp-response", "compression", "log-format", "http-after-response", "no":
		if len(l.words) > 1 && w != "log-format" {
			return w + " " + l.words[1]
		}
	}
	return l.words[0]
}

// section is a block of HAProxy's file.
type section struct {
	kind, name string
	at         pos
	words      []string
	lines      []*line
}

// sectionKinds are the keywords that begin a section.
var sectionKinds = []string{
	"global", "defaults", "frontend", "backend", "listen", "userlist", "peers", "resolvers", "mailers", "program", "cache", "ring", "log-forward", "fcgi-app", "http-errors", "crt-store", "traces", "log-profile", "acme",
}

// parseHAProxy returns the sections of a file.
func parseHAProxy(s *source, l *ledger) (list []*section) {
	var open *section
	number := 0
	for text := range strings.Lines(s.files[0].text) {
		number++
		words, first, wrong := haproxyWords(strings.TrimRight(text, "\r\n"))
		at := pos{0, number, first}
		if wrong != "" {
			s.fail(at, "close the quotes in the line", "%s", wrong)
			continue
		}
		if len(words) == 0 {
			continue
		}
		if !s.count(at) {
			return list
		}
		l.enter(at, strings.Join(words, " "))
		if strings.HasPrefix(words[0], ".") {
			l.left(at, "conditions of the file are not evaluated: what they enclose is translated", "remove what does not hold")
			continue
		}
		if slices.Contains(sectionKinds, words[0]) {
			open = &section{kind: words[0], at: at, words: words}
			if len(words) > 1 {
				open.name = words[1]
			}
			list = append(list, open)
			continue
		}
		if open == nil {
			s.fail(at, "begin with global, defaults, frontend, backend or listen", "%s stands in no section", shorten(words[0]))
			continue
		}
		open.lines = append(open.lines, &line{words, at})
	}
	return list
}

// haproxyWords splits a line: blanks separate, quotes of both kinds and backslashes keep them, and # begins a comment. first is the
// column of the first word.
func haproxyWords(text string) (words []string, first int, wrong string) {
	var word strings.Builder
	inWord, column := false, 0
	quote := byte(0)
	flush := func() {
		if inWord {
			words = append(words, word.String())
			word.Reset()
			inWord = false
		}
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c&0xc0 != 0x80 {
			column++
		}
		switch {
		case quote == '\'' && c == '\'', quote == '"' && c == '"':
			quote = 0
			continue
		case quote == '\'':
		case c == '\\' && i+1 < len(text) && escapes[text[i+1]] != 0: // others stay, as those of regular expressions
			i++
			column++
			c = escapes[text[i]]
		case quote == '"':
		case c == '\'' || c == '"':
			quote, inWord = c, true
			if first == 0 {
				first = column
			}
			continue
		case c == '#':
			flush()
			return words, max(first, 1), ""
		case c == ' ' || c == '\t':
			flush()
			continue
		}
		if first == 0 {
			first = column
		}
		word.WriteByte(c)
		inWord = true
	}
	flush()
	if quote != 0 {
		wrong = "the quotes are not closed"
	}
	return words, max(first, 1), wrong
}

// escapes are the characters that a backslash may stand before.
var escapes = map[byte]byte{' ': ' ', '\\': '\\', '#': '#', '"': '"', '\'': '\'', 'n': '\n', 't': '\t', 'r': '\r'}
