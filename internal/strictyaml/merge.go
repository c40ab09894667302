package strictyaml

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Aliases make a short file stand for a long one, and nested ones for an exponentially long one. A walk of
// the document may therefore visit this many nodes, and this many for each node that the file has. A
// thousand services that merge one mapping of ten keys need less.
const (
	freeVisits    = 100_000
	visitsPerNode = 10
)

// visit counts a key or an item. It reports false, once with a problem, when aliases repeat too much.
func (d *Decoder) visit(n *yaml.Node) bool {
	if d.exhausted {
		return false
	}
	if d.visits++; d.visits > freeVisits+visitsPerNode*d.nodes {
		d.exhausted = true
		d.Fail(n, "write the repeated part once", "the aliases of the file stand for more than %d nodes", d.visits-1)
	}
	return !d.exhausted
}

// countNodes returns how many nodes the file has. An alias is one, whatever it stands for.
func countNodes(n *yaml.Node) int {
	count := 1
	for _, c := range n.Content {
		count += countNodes(c)
	}
	return count
}

// pair is a key of a mapping with its value.
type pair struct{ key, value *yaml.Node }

// pairs returns the keys of a mapping: its own, then those of the mappings that it merges ("<<"), each of
// which has the value that comes first (https://yaml.org/type/merge.html).
func (d *Decoder) pairs(n *yaml.Node) []pair {
	var list []pair
	d.collect(n, map[string]*yaml.Node{}, nil, &list)
	return list
}

// collect appends the pairs of n whose keys are not in seen. within are the mappings that n is merged into.
func (d *Decoder) collect(n *yaml.Node, seen map[string]*yaml.Node, within []*yaml.Node, list *[]pair) {
	own := map[string]*yaml.Node{}
	var merged *yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if !d.visit(key) {
			return
		}
		first := own[key.Value]
		if first != nil {
			d.Fail(key, "", "key %q is repeated: it is already on line %d", key.Value, first.Line)
			continue
		}
		own[key.Value] = key
		switch {
		case key.ShortTag() == "!!merge":
			merged = follow(value)
		case n == d.root && strings.HasPrefix(key.Value, "x-"):
		case seen[key.Value] == nil:
			seen[key.Value] = key
			*list = append(*list, pair{key, follow(value)})
		}
	}
	if merged != nil {
		d.merge(merged, seen, append(within, n), list)
	}
}

// merge appends the pairs of a mapping, or of a list of them.
func (d *Decoder) merge(n *yaml.Node, seen map[string]*yaml.Node, within []*yaml.Node, list *[]pair) {
	switch {
	case slices.Contains(within, n):
		d.Fail(n, "", "a mapping is merged into itself")
	case n.Kind == yaml.MappingNode:
		d.collect(n, seen, within, list)
	case n.Kind == yaml.SequenceNode:
		for _, item := range n.Content {
			if item = follow(item); item.Kind == yaml.SequenceNode || !d.visit(item) {
				d.notMerged(item)
				return
			}
			d.merge(item, seen, within, list)
		}
	default:
		d.notMerged(n)
	}
}

func (d *Decoder) notMerged(n *yaml.Node) {
	if !d.exhausted {
		d.Fail(n, "such as <<: *name", "<< must be a mapping or a list of mappings, not %s", Kind(n))
	}
}

// Find returns the value of a key below a mapping, by a path such as "timeouts.idle", as Mapping reads it: from the mapping itself,
// or from the first that it merges. It is nil where the key is absent. The root has been walked, which bounds what aliases stand for.
func (d *Decoder) Find(n *yaml.Node, path string) *yaml.Node {
	if d.exhausted {
		return nil
	}
	for more := true; more && n != nil; {
		var key string
		key, path, more = strings.Cut(path, ".")
		n = valueOf(n, key, nil)
	}
	return n
}

// valueOf returns the value of one key. within are the mappings that n is merged into.
func valueOf(n *yaml.Node, key string, within []*yaml.Node) *yaml.Node {
	if n = follow(n); n.Kind != yaml.MappingNode || slices.Contains(within, n) {
		return nil
	}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k := n.Content[i]; k.ShortTag() == "!!merge" {
			merged = []*yaml.Node{n.Content[i+1]}
		} else if k.Value == key {
			return follow(n.Content[i+1])
		}
	}
	if len(merged) > 0 && follow(merged[0]).Kind == yaml.SequenceNode {
		merged = follow(merged[0]).Content
	}
	for _, m := range merged {
		if v := valueOf(m, key, append(within, n)); v != nil {
			return v
		}
	}
	return nil
}
