//go:build !amd64 || purego

package acl

// descend replaces the words of roots by those of leaves.
func (t *tree) descend(keys []treeKey, at []uint32) { t.descendPlain(keys, at) }

// compare lowers found to the places of rules in the packets' blocks that match.
func (t *tree) compare(keys []treeKey, at []uint32, found []uint16) { t.comparePlain(keys, at, found) }
