package rewrite

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/millrace/millrace/internal/random"
	"github.com/millrace/millrace/semantics"
)

// KeyBy selects the part of a request that is hashed.
type KeyBy uint8

// Values of KeyBy.
const (
	ByClient KeyBy = iota // the client's address
	ByHeader              // the first line of a field
	ByCookie              // a cookie
	ByQuery               // a parameter of the query, as it stands there
	ByPath                // the path, without the query
)

// Key selects the requests that consistent hashing keeps together. A request without it goes by the client's address.
type Key struct {
	By   KeyBy
	Name string // of the field, in lower case, the cookie or the parameter
	// Secret keys the hash: clients cannot compute which values lead to one backend. Gateways with one secret agree; without one
	// all do.
	Secret random.Key
}

// Source is the parts of a request that a Key reads.
type Source struct {
	Fields []semantics.Field
	Path   string
	Query  string // without or with the question mark
	Client netip.Addr
}

// Of returns the hash of a request.
func (k *Key) Of(s *Source) uint64 {
	if text, ok := k.Text(s); ok {
		return k.Secret.Sum(bytesOf(text))
	}
	a := s.Client.As16() // of IPv4 the mapped form
	h := k.Secret.Start()
	h.Word(binary.LittleEndian.Uint64(a[:]))
	h.Word(binary.LittleEndian.Uint64(a[8:]))
	return h.Sum(len(a), 0)
}

// Present returns the hash of a request, which is not 0; false where the request lacks what is hashed.
func (k *Key) Present(s *Source) (uint64, bool) {
	if _, ok := k.Text(s); !ok && k.By != ByClient {
		return 0, false
	}
	return max(k.Of(s), 1), true
}

// Text returns the part of a request that is hashed; false where the request lacks it, and by the client.
func (k *Key) Text(s *Source) (string, bool) {
	switch k.By {
	case ByHeader:
		for i := range s.Fields {
			if s.Fields[i].Name == k.Name {
				return s.Fields[i].Value, true
			}
		}
	case ByCookie:
		return Cookie(s.Fields, k.Name)
	case ByQuery:
		return parameter(strings.TrimPrefix(s.Query, "?"), k.Name)
	case ByPath:
		return s.Path, true
	}
	return "", false
}

// Each calls f with each value that a request has in a field, a cookie or a parameter; by the client and the path with none.
func (k *Key) Each(s *Source, f func(text string)) {
	switch k.By {
	case ByHeader:
		for i := range s.Fields {
			if s.Fields[i].Name == k.Name {
				f(s.Fields[i].Value)
			}
		}
	case ByCookie:
		for i := range s.Fields {
			if s.Fields[i].Name == "cookie" {
				eachPair(s.Fields[i].Value, ";", k.Name, f)
			}
		}
	case ByQuery:
		eachPair(strings.TrimPrefix(s.Query, "?"), "&", k.Name, f)
	}
}

// eachPair calls f with the values of a name among pairs. Those of cookies may have blanks around them.
func eachPair(pairs, separator, name string, f func(text string)) {
	for pairs != "" {
		var pair string
		pair, pairs, _ = strings.Cut(pairs, separator)
		key, value, found := strings.Cut(pair, "=")
		if separator == ";" {
			key, value = trim(key), trim(value)
		}
		if separator == "&" {
			if semantics.DecodeQuery(key) == name {
				f(semantics.DecodeQuery(value))
			}
		} else if found && key == name {
			f(value)
		}
	}
}

// parameter returns the first value of a parameter of a query.
func parameter(query, name string) (string, bool) {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		if key, value, _ := strings.Cut(pair, "="); semantics.DecodeQuery(key) == name {
			return semantics.DecodeQuery(value), true
		}
	}
	return "", false
}
