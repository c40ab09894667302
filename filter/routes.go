package filter

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/millrace/millrace/gpukern/lpm"
)

// Routes is a routing table as it was read, and compiled. It is immutable.
type Routes struct {
	list []lpm.Route
	lpm  *lpm.Table
}

// LPM returns the compiled table.
func (r *Routes) LPM() *lpm.Table { return r.lpm }

// List borrows the routes as they were read: what a reference takes.
func (r *Routes) List() []lpm.Route { return r.list }

// ParseRoutes reads routes, one on a line; what follows a "#" is comment.
//
//	PREFIX via NUMBER
//
//	198.18.0.0/15 via 3
//	2001:db8::/32 via 65535
//
// PREFIX is an address or a prefix, NUMBER from 1 to 65535 becomes Desc.NextHop. name is the text's, for
// errors. All mistakes are returned at once, joined, up to maxMistakes; each is a *SyntaxError.
func ParseRoutes(name, text string) (*Routes, error) {
	r := &Routes{}
	var sources []SyntaxError
	err := lines(name, text, "routes", uncomment, func(p *parser, line int, source string) error {
		one, err := p.route()
		if err != nil {
			return err
		}
		r.list = append(r.list, one)
		sources = append(sources, SyntaxError{Name: name, Line: line, Column: 1, Source: source})
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.lpm, err = lpm.Compile(r.list)
	if bad := new(lpm.RouteError); errors.As(err, &bad) && bad.N <= len(sources) {
		e := sources[bad.N-1]
		e.Msg = bad.Reason
		return nil, &e
	}
	return r, err
}

// route reads a whole line.
func (p *parser) route() (r lpm.Route, err error) {
	if r.Prefix, err = prefix(p.word()); err != nil {
		return r, err
	}
	if r.Prefix == (netip.Prefix{}) {
		return r, errors.New("a route has an address or a prefix; all addresses are 0.0.0.0/0 and ::/0")
	}
	if w := p.word(); w != "via" {
		return r, fmt.Errorf("behind the prefix stands via, not %q", w)
	}
	w := p.word()
	n, err := strconv.ParseUint(w, 10, 16)
	if err != nil || n == 0 {
		return r, fmt.Errorf("%q is not the number of a next hop, 1 to 65535", w)
	}
	r.NextHop = uint16(n)
	if w := p.word(); w != "" {
		return r, fmt.Errorf("%q is one word too many; a line is PREFIX via NUMBER", w)
	}
	return r, nil
}
