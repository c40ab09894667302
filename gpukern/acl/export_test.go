package acl

const ListMost = listMost

// DecisionOf returns a list that has decisions and no other form, nil where a family has none.
func DecisionOf(rules []Rule, v4 bool) *List {
	d := decide(rules, v4)
	if d == nil {
		return nil
	}
	a := &List{n: len(rules)}
	a.of(v4).decision = d
	return a
}

// VectorsOf returns a list that has bit vectors and no other form, of at most budget words a field; 0 is
// what every list may have.
func VectorsOf(rules []Rule, budget int) *List {
	if budget == 0 {
		budget = vectorBudget
	}
	a := &List{n: len(rules)}
	a.v4.vectors.compile(rules, (*Rule).for4, budget)
	a.v6.vectors.compile(rules, (*Rule).for6, budget)
	return a
}

// Coarse reports whether vectors of a say "may match".
func (a *List) Coarse() bool { return a.v4.vectors.coarse || a.v6.vectors.coarse }

// VectorWords returns how many words the vectors of IPv4 take.
func (a *List) VectorWords() int { return len(a.v4.vectors.vec) }

// TreeOf returns a list that has a tree and no other form, nil where there is none.
func TreeOf(rules []Rule) *List {
	t := growTree(rules)
	if t == nil {
		return nil
	}
	return &List{n: len(rules), v4: family{tree: t}}
}

// TreeShape returns the trees, words, blocks and bytes of a list's tree.
func (a *List) TreeShape() (trees, words, blocks, bytes int) {
	t := a.v4.tree
	return len(t.roots), len(t.words), len(t.blocks), t.size()
}
