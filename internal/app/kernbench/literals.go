package kernbench

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace/millrace/capture"
	"github.com/millrace/millrace/gpukern/literal"
)

// Literals makes n patterns such as rules of intrusion detection have: paths, names and values of
// headers, host names, commands, and binary signatures, in about their lengths; half of the texts match
// in either case. One in twenty is cut out of texts, where there are any. Equal arguments make equal
// patterns. Rules count from 1; no two patterns have the same bytes.
func Literals(seed uint64, n int, texts [][]byte) []literal.Pattern {
	g := literalMaker{rand.New(rand.NewPCG(seed, 1)), texts}
	seen := make(map[string]bool, n)
	var set []literal.Pattern
	for len(set) < n {
		b, noCase := g.pattern()
		if key := strings.ToLower(string(b)); telling(b) && !seen[key] {
			seen[key] = true
			set = append(set, literal.Pattern{Bytes: b, NoCase: noCase, Rule: uint32(len(set) + 1)})
		}
	}
	return set
}

// telling reports whether b can be a signature: long enough, and not one byte repeated but for a few.
func telling(b []byte) bool {
	if len(b) < literal.MinLen {
		return false
	}
	most := 0
	for _, c := range b {
		most = max(most, bytes.Count(b, []byte{c}))
	}
	return most <= (len(b)+1)/2
}

type literalMaker struct {
	*rand.Rand
	texts [][]byte
}

// pattern makes one, perhaps too short.
func (g literalMaker) pattern() (b []byte, noCase bool) {
	size := g.size()
	switch k := g.IntN(100); {
	case k < 5 && len(g.texts) > 0:
		return g.excerpt(size), false
	case k < 30:
		return g.binary(size), false
	}
	b = []byte(g.text())
	for len(b) < size {
		b = append(b, g.text()...)
	}
	at := g.IntN(len(b) - size + 1)
	return b[at : at+size], g.IntN(2) == 0
}

// size draws the length of a pattern: one in ten is shorter than 8 bytes, half are longer than 16.
func (g literalMaker) size() int {
	switch k := g.IntN(100); {
	case k < 1:
		return 3
	case k < 4:
		return 4
	case k < 10:
		return 5 + g.IntN(3)
	case k < 45:
		return 8 + g.IntN(8)
	case k < 90:
		return 16 + g.IntN(17)
	}
	return 33 + g.IntN(32)
}

// excerpt cuts a pattern out of a text.
func (g literalMaker) excerpt(size int) []byte {
	t := g.texts[g.IntN(len(g.texts))]
	if len(t) < size {
		return nil
	}
	at := g.IntN(len(t) - size + 1)
	return slices.Clone(t[at : at+size])
}

var literalMagics = []string{
	"\xffSMB", "\xfeSMB", "\x16\x03\x01", "MZ\x90\x00", "\x7fELF", "PK\x03\x04",
	"\x90\x90\x90\x90", "\xff\xd8\xff\xe0", "\x05\x00\x0b\x03", "\x30\x82", "\x04\x01\x00\x00", "\xeb\x1f\x5e\x89",
}

// binary is a magic number, a field or two, and bytes.
func (g literalMaker) binary(size int) []byte {
	var b []byte
	if g.IntN(2) == 0 {
		b = append(b, literalMagics[g.IntN(len(literalMagics))]...)
	}
	for len(b) < size {
		switch g.IntN(4) {
		case 0:
			b = append(b, 0, byte(1+g.IntN(4)))
		default:
			b = append(b, byte(g.Uint32()))
		}
	}
	return b[:size]
}

var (
	literalWords = strings.Fields(`admin login user pass config index shell upload update download check image
		script query search report status session token auth key data file path root system setup install
		backup temp cache proxy gate panel bot client server command exec eval decode base load post get
		put delete select union insert drop table where from order script alert cookie document window
		frame object class java flash pdf doc xls zip exe dll sys bat cmd bin etc passwd shadow windows
		winnt system32 explorer chrome mozilla firefox safari opera agent host accept encoding content
		type length range referer location server date connection close keep alive transfer chunked gzip
		deflate html xml json text plain form multipart boundary charset utf stream audio video media ping
		port scan worm trojan spy key logger miner pool wallet coin stratum rat beacon payload stage drop
		loader crypt lock ransom note mail smtp rcpt helo ehlo quit data list retr dele stat noop`)
	literalEnds    = strings.Fields(".php .asp .aspx .jsp .cgi .pl .exe .dll .js .html .txt .gif .png .zip .dat .ini")
	literalHeaders = strings.Fields("User-Agent Host Cookie Referer Content-Type Content-Disposition X-Forwarded-For Authorization Accept Server Location X-Id")
	literalTops    = strings.Fields(".com .net .org .ru .cn .info .biz .top .xyz .example")
)

func (g literalMaker) of(list []string) string { return list[g.IntN(len(list))] }

// word is a word, sometimes capital, with a number or misspelt.
func (g literalMaker) word() string {
	w := g.of(literalWords)
	switch g.IntN(6) {
	case 0:
		w = strings.ToUpper(w[:1]) + w[1:]
	case 1:
		w += fmt.Sprint(g.IntN(1000))
	case 2:
		at := g.IntN(len(w))
		w = w[:at] + string(rune('a'+g.IntN(26))) + w[at:]
	}
	return w
}

// text makes a piece of a request, of an answer or of a command.
func (g literalMaker) text() string {
	switch g.IntN(7) {
	case 0:
		return "/" + g.word() + "/" + g.word() + g.of(literalEnds)
	case 1:
		return g.word() + g.of(literalEnds) + "?" + g.word() + "=" + g.word() + "&" + g.word() + "="
	case 2:
		return g.of(literalHeaders) + ": " + g.word() + "/" + fmt.Sprint(g.IntN(10)) + "." + fmt.Sprint(g.IntN(100)) + "\r\n"
	case 3:
		return g.word() + "-" + g.word() + g.of(literalTops)
	case 4:
		return g.word() + " " + g.word() + " " + g.word()
	case 5:
		return fmt.Sprintf("%x%s", g.Uint64(), g.word())
	}
	return g.word() + "_" + g.word() + "(\"" + g.word()
}

// NearMisses makes texts of size bytes, total in all, of what nearly matches patterns, which compile: each
// with its first or last byte missing or one byte changed. Of the patterns that lie there nevertheless, by
// chance, one in a hundred stays: texts are for searches that find little after much.
func NearMisses(seed uint64, patterns []literal.Pattern, size, total int) [][]byte {
	r := rand.New(rand.NewPCG(seed, 2))
	var all []byte
	for len(all) < total {
		b := slices.Clone(patterns[r.IntN(len(patterns))].Bytes)
		switch k := r.IntN(100); {
		case k < 33:
			b = b[:len(b)-1]
		case k < 50:
			b = b[1:]
		default:
			b[r.IntN(len(b))] ^= byte(1 + r.IntN(255))
		}
		all = append(all, b...)
	}
	set, err := literal.Compile(patterns)
	if err != nil {
		panic(err)
	}
	texts := slices.Collect(slices.Chunk(all[:total], size))
	for _, text := range texts {
		spoil(r, set, text)
	}
	return texts
}

// spoil changes the last byte of what matches in a text, until little does.
func spoil(r *rand.Rand, set *literal.Set, text []byte) {
	kept := map[uint32]bool{} // ends
	for {
		changed := false
		for _, m := range set.Scan(nil, text, len(text)*8, nil) {
			if kept[m.End] || m.Rule == 0 {
				continue
			}
			if kept[m.End] = r.IntN(100) == 0; !kept[m.End] {
				text[m.End-1] ^= byte(1 + r.IntN(255))
				changed = true
			}
		}
		if !changed {
			return
		}
	}
}

// Noise makes texts of size random bytes, total in all.
func Noise(seed uint64, size, total int) [][]byte {
	var key [32]byte
	key[0] = byte(seed)
	all := make([]byte, total)
	_, _ = rand.NewChaCha8(key).Read(all)
	return slices.Collect(slices.Chunk(all, size))
}

// Payloads returns what follows the transport headers in the captures of a folder, in order. A file is
// read up to its first damage; one that is no capture is left out.
func Payloads(dir string) ([][]byte, error) {
	var texts [][]byte
	for _, ext := range []string{"*.pcap", "*.pcapng"} {
		paths, err := filepath.Glob(filepath.Join(dir, ext))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			texts = appendPayloads(texts, path)
		}
	}
	if len(texts) == 0 {
		return nil, fmt.Errorf("no captures with payloads in %s", dir)
	}
	return texts, nil
}

func appendPayloads(texts [][]byte, path string) [][]byte {
	r, err := capture.Open(path)
	if err != nil {
		return texts
	}
	defer func() { _ = r.Close() }()
	for {
		rec, err := r.Next()
		if err != nil {
			return texts
		}
		frame, err := capture.ToEthernet(rec.LinkType, rec.Data, nil)
		if err != nil {
			continue
		}
		if at := capture.Decode(frame).Payload; at > 0 && at < len(frame) {
			texts = append(texts, slices.Clone(frame[at:]))
		}
	}
}
