package kernbench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/gpukern"
)

// Op is an operation, or several in one pass, with the tables that it is measured with.
type Op struct {
	Name  string
	Title string // for people: what it does, with what

	ops      gpukern.Ops
	rules    int // of the ACL
	routes4  int
	routes6  int
	flows    int      // different flows of the traffic, and in the flow table
	patterns int      // literals
	sizes    []string // instead of the usual ones
	latency  bool     // batches of it are timed one by one
	null     bool     // the GPU touches no packet
}

// The sizes of packets, bytes without the frame check sequence.
const (
	Size64      = "64"
	Size256     = "256"
	Size1408    = "1408"
	SizeIMIX    = "imix"        // 7 of 60, 4 of 590 and 1 of 1514
	SizeCapture = "captures"    // real ones
	SizeHostile = "adversarial" // 1408 B of text that begins like literals everywhere, and has many
)

// Sizes are all of them, in the order of the tables.
func Sizes() []string {
	return []string{Size64, Size256, Size1408, SizeIMIX, SizeCapture, SizeHostile}
}

// usualSizes are those of operations that do not look at text.
var usualSizes = Sizes()[:5]

// Of flows there are usually so many.
const usualFlows = 1 << 16

const (
	fused = gpukern.OpsHeader | gpukern.OpFlow
	parse = gpukern.OpParse
)

var catalogue = []Op{
	{Name: "null", Title: "no packet is touched: the price of handing a batch over (the CPU parses)", ops: parse, sizes: []string{Size64}, latency: true, null: true},
	{Name: "parse", Title: "headers: offsets, protocol, fragments", ops: parse},
	{Name: "checksum", Title: "IPv4 and transport checksums verified", ops: parse | gpukern.OpChecksum},
	{Name: "hash", Title: "symmetric Toeplitz hash", ops: parse | gpukern.OpHash},
	{Name: "acl-100", Title: "5-tuple rules, 100", ops: parse | gpukern.OpACL, rules: 100},
	{Name: "acl-1k", Title: "5-tuple rules, 1 000", ops: parse | gpukern.OpACL, rules: 1000},
	{Name: "acl-10k", Title: "5-tuple rules, 10 000", ops: parse | gpukern.OpACL, rules: 10000},
	{Name: "lpm", Title: "longest prefix match, 1 M IPv4 and 200 k IPv6 routes", ops: parse | gpukern.OpLPM, routes4: 1_000_000, routes6: 200_000},
	{Name: "flow-1k", Title: "flow table, 1 000 flows", ops: parse | gpukern.OpFlow, flows: 1000},
	{Name: "flow-1m", Title: "flow table, 1 M flows", ops: parse | gpukern.OpFlow, flows: 1 << 20},
	{Name: "flow-16m", Title: "flow table, 16 M flows", ops: parse | gpukern.OpFlow, flows: 15 << 20, sizes: []string{Size64}},
	{Name: "header", Title: "parse, checksums, hash, 100 rules, 1 000 routes", ops: gpukern.OpsHeader, rules: 100, routes4: 1000, latency: true},
	{Name: "fused", Title: "header pass with everything: checksums, hash, flow table, 10 000 rules, 1 M routes", ops: fused, rules: 10000, routes4: 1_000_000, routes6: 200_000, latency: true},
	{Name: "literals-100", Title: "literals of 3-64 bytes, 100", ops: parse | gpukern.OpLiterals, patterns: 100, sizes: Sizes()},
	{Name: "literals-1k", Title: "literals of 3-64 bytes, 1 000", ops: parse | gpukern.OpLiterals, patterns: 1000, sizes: Sizes(), latency: true},
	{Name: "literals-10k", Title: "literals of 3-64 bytes, 10 000", ops: parse | gpukern.OpLiterals, patterns: 10000, sizes: Sizes(), latency: true},
}

// Ops returns all operations, in the order of the tables.
func Ops() []Op { return slices.Clone(catalogue) }

// Sizes returns the sizes that the operation is measured with.
func (o *Op) Sizes() []string {
	if o.sizes != nil {
		return slices.Clone(o.sizes)
	}
	return slices.Clone(usualSizes)
}

// text reports whether the operation reads payloads only, so that a rate in bytes counts these.
func (o *Op) text() bool { return o.ops&gpukern.OpLiterals != 0 }

// named reports whether word names an operation or the group that it belongs to: "acl" is all of acl-100, acl-1k and acl-10k.
func named(name, word string) bool {
	return word == name || strings.HasPrefix(name, word+"-")
}

// KeyGroup is the word for all public-key operations, TextGroup that for all with symmetric keys.
const (
	KeyGroup  = "keys"
	TextGroup = "symmetric"
)

// chooseOps returns the operations that words name, all of them where there are no words.
func chooseOps(words []string) (ops []Op, keys []KeyOp, err error) {
	if len(words) == 0 {
		return Ops(), append(KeyOps(), textCatalogue...), nil
	}
	all := Operations()
	for _, w := range words {
		if w != KeyGroup && w != TextGroup && !slices.ContainsFunc(all, func(name string) bool { return named(name, w) }) {
			return nil, nil, fmt.Errorf("no operation %q; there are: %s", w, strings.Join(all, " "))
		}
	}
	for _, o := range catalogue {
		if slices.ContainsFunc(words, func(w string) bool { return named(o.Name, w) }) {
			ops = append(ops, o)
		}
	}
	for _, o := range keyCatalogue {
		if slices.ContainsFunc(words, func(w string) bool { return w == KeyGroup || named(o.Name, w) }) {
			keys = append(keys, o)
		}
	}
	for _, o := range textCatalogue {
		if slices.ContainsFunc(words, func(w string) bool { return w == TextGroup || named(o.Name, w) }) {
			keys = append(keys, o)
		}
	}
	return ops, keys, nil
}

// Operations returns the names of all operations, those of public and of symmetric keys last.
func Operations() (all []string) {
	for i := range catalogue {
		all = append(all, catalogue[i].Name)
	}
	for i := range keyCatalogue {
		all = append(all, keyCatalogue[i].Name)
	}
	for i := range textCatalogue {
		all = append(all, textCatalogue[i].Name)
	}
	return all
}

// chooseSizes checks words that name sizes; no words are nil, which is all.
func chooseSizes(words []string) ([]string, error) {
	for _, w := range words {
		if !slices.Contains(Sizes(), w) {
			return nil, fmt.Errorf("no size %q; there are: %s", w, strings.Join(Sizes(), " "))
		}
	}
	return words, nil
}
