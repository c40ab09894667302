package ports

// Terms are the conditions on which a socket shares its address and port.
type Terms struct {
	Reuse bool   // SO_REUSEADDR: beside others with it
	Share bool   // SO_REUSEPORT: beside others of the same user with it
	User  uint32 // whose socket it is
}

// together reports whether two sockets may have an address and port together, as bind(2) of Linux decides it.
func (x Terms) together(o Terms) bool {
	return x.Reuse && o.Reuse || x.Share && o.Share && x.User == o.User
}

// Taken counts the sockets of a port by scope and terms, to say whether another one may be beside them. The answer takes
// the same time however many they are: up to fewClaims are compared one by one, and more are counted by what can conflict.
type Taken struct {
	few  []claim
	many *claimCounts // once there were more than fewClaims; nil when none is left
}

type claim struct {
	scope Scope
	terms Terms
}

const fewClaims = 8

// Add counts a socket.
func (t *Taken) Add(s Scope, x Terms) {
	if t.many == nil && len(t.few) < fewClaims {
		t.few = append(t.few, claim{s, x})
		return
	}
	if t.many == nil {
		t.many = &claimCounts{exact: map[Scope]*termCounts{}}
		for _, c := range t.few {
			t.many.add(c.scope, c.terms, 1)
		}
		t.few = nil
	}
	t.many.add(s, x, 1)
}

// Remove undoes an Add with the same arguments.
func (t *Taken) Remove(s Scope, x Terms) {
	if t.many != nil {
		if t.many.add(s, x, -1); t.many.total == 0 {
			t.many = nil
		}
		return
	}
	for i, c := range t.few {
		if c == (claim{s, x}) {
			last := len(t.few) - 1
			t.few[i] = t.few[last]
			t.few = t.few[:last]
			return
		}
	}
}

// Len returns how many sockets are counted.
func (t *Taken) Len() int {
	if t.many != nil {
		return t.many.total
	}
	return len(t.few)
}

// Conflict reports whether a socket with a scope and terms may not be beside those that are counted.
func (t *Taken) Conflict(s Scope, x Terms) bool {
	if t.many != nil {
		return t.many.conflict(s, x)
	}
	for _, c := range t.few {
		if c.scope.Overlaps(s) && !c.terms.together(x) {
			return true
		}
	}
	return false
}

// Covers reports whether a socket is bound to an address.
func (t *Taken) Covers(s Scope) bool { return t.Conflict(s, Terms{}) }

// claimCounts counts sockets by scope and, for scopes that overlap with many others, by kind of scope.
type claimCounts struct {
	total int
	exact map[Scope]*termCounts
	kinds [scopeKinds]termCounts
}

// scopeKind sorts scopes by which others they overlap with.
type scopeKind uint8

const (
	address4 scopeKind = iota
	address6
	every4   // all addresses of IPv4
	every6   // all of IPv6
	everyAny // all of both
	scopeKinds
)

func kindOf(s Scope) scopeKind {
	switch {
	case !s.Addr.Unspecified() && s.Addr.Is4():
		return address4
	case !s.Addr.Unspecified():
		return address6
	case s.Addr.Is4():
		return every4
	case s.V6Only:
		return every6
	}
	return everyAny
}

// overlapping has the kinds of scopes that overlap with each kind. Two scopes with an address overlap only if they are equal,
// which claimCounts.exact knows.
var overlapping = [scopeKinds][]scopeKind{
	address4: {every4, everyAny},
	address6: {every6, everyAny},
	every4:   {address4, every4, everyAny},
	every6:   {address6, every6, everyAny},
	everyAny: {address4, address6, every4, every6, everyAny},
}

// add counts n more sockets, or fewer.
func (c *claimCounts) add(s Scope, x Terms, n int) {
	c.total += n
	kind := kindOf(s)
	c.kinds[kind].add(x, n)
	if kind > address6 {
		return
	}
	e := c.exact[s]
	if e == nil {
		e = &termCounts{}
		c.exact[s] = e
	}
	if e.add(x, n); e.total == 0 {
		delete(c.exact, s)
	}
}

func (c *claimCounts) conflict(s Scope, x Terms) bool {
	if e := c.exact[s]; e != nil && e.excludes(x) {
		return true
	}
	for _, kind := range overlapping[kindOf(s)] {
		if c.kinds[kind].excludes(x) {
			return true
		}
	}
	return false
}

// termCounts counts sockets by their terms.
type termCounts struct {
	total, reuse int
	share        map[uint32]shareCount // by user
}

// shareCount counts sockets of a user with SO_REUSEPORT.
type shareCount struct {
	all, reuse int // reuse: of all, those with SO_REUSEADDR, too
}

func (c *termCounts) add(x Terms, n int) {
	c.total += n
	if x.Reuse {
		c.reuse += n
	}
	if !x.Share {
		return
	}
	if c.share == nil {
		c.share = map[uint32]shareCount{}
	}
	of := c.share[x.User]
	of.all += n
	if x.Reuse {
		of.reuse += n
	}
	if c.share[x.User] = of; of.all == 0 {
		delete(c.share, x.User)
	}
}

// excludes reports whether some of the sockets may not be together with another one.
func (c *termCounts) excludes(x Terms) bool {
	together := 0
	if x.Reuse {
		together += c.reuse
	}
	if of := c.share[x.User]; x.Share {
		together += of.all
		if x.Reuse {
			together -= of.reuse // they are counted already
		}
	}
	return c.total > together
}
