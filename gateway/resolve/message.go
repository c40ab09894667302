package resolve

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Errors of look-ups. Others are of the network.
var (
	ErrNoName    = errors.New("there is no such name") // NXDOMAIN
	ErrNoAddress = errors.New("the name has no address of the family")
	ErrNoService = errors.New("the name has no service (SRV)")
	ErrServer    = errors.New("the name server fails")
	ErrMessage   = errors.New("the answer is malformed")

	errTruncated = errors.New("the answer is truncated")
	errForeign   = errors.New("no answer to the question")
	errFormat    = errors.New("the name server does not understand the question")
)

// payload is the size of datagrams that are asked for: what fits the path everywhere (DNS flag day 2020).
const payload = 1232

// maxChain bounds the aliases (CNAME) between a name and its records.
const maxChain = 16

// record is a record of an answer.
type record struct {
	ttl  time.Duration
	addr netip.Addr             // of A and AAAA
	srv  dnsmessage.SRVResource // of SRV
}

// appendQuery appends a question. size 0 leaves EDNS out, for servers of before 1999.
func appendQuery(b []byte, id uint16, name string, typ dnsmessage.Type, size int) ([]byte, error) {
	n, err := dnsmessage.NewName(name)
	if err != nil {
		return nil, fmt.Errorf("%q is no name: %w", name, err)
	}
	m := dnsmessage.NewBuilder(b, dnsmessage.Header{ID: id, RecursionDesired: true})
	err = errors.Join(m.StartQuestions(), m.Question(dnsmessage.Question{Name: n, Type: typ, Class: dnsmessage.ClassINET}))
	if size > 0 {
		var h dnsmessage.ResourceHeader
		err = errors.Join(err, m.StartAdditionals(), h.SetEDNS0(size, dnsmessage.RCodeSuccess, false), m.OPTResource(h, dnsmessage.OPTResource{}))
	}
	if err != nil {
		return nil, err
	}
	return m.Finish()
}

// parseAnswer returns the records of a type that an answer has for a name, at the end of its aliases. errForeign is of a message that
// answers another question: whoever can send to the socket has to guess the number, the name and the type (RFC 5452 9.1).
func parseAnswer(msg []byte, id uint16, name string, typ dnsmessage.Type) ([]record, error) {
	if len(msg) < 12 || binary.BigEndian.Uint16(msg) != id {
		return nil, errForeign
	}
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil || !h.Response {
		return nil, errForeign
	}
	if h.RCode == dnsmessage.RCodeFormatError { // it may come without the question
		return nil, errFormat
	}
	q, err := p.AllQuestions()
	if err != nil || len(q) != 1 || !strings.EqualFold(q[0].Name.String(), name) || q[0].Type != typ || q[0].Class != dnsmessage.ClassINET {
		return nil, errForeign
	}
	switch {
	case h.Truncated:
		return nil, errTruncated
	case h.RCode == dnsmessage.RCodeNameError:
		return nil, ErrNoName
	case h.RCode != dnsmessage.RCodeSuccess:
		return nil, fmt.Errorf("%w: %s", ErrServer, strings.TrimPrefix(h.RCode.String(), "RCode"))
	}
	all, err := p.AllAnswers()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return follow(all, name, typ)
}

// follow returns the records of a type at the end of a name's aliases. The least time to live of the way is that of all: any of them
// may change the answer.
func follow(all []dnsmessage.Resource, name string, typ dnsmessage.Type) (list []record, err error) {
	ttl := uint32(1<<31 - 1) // RFC 2181 8
	for range maxChain {
		next := ""
		for i := range all {
			r := &all[i]
			if !strings.EqualFold(r.Header.Name.String(), name) || r.Header.Class != dnsmessage.ClassINET {
				continue
			}
			if alias, ok := r.Body.(*dnsmessage.CNAMEResource); ok && typ != dnsmessage.TypeCNAME {
				next, ttl = alias.CNAME.String(), min(ttl, r.Header.TTL)
				continue
			}
			if r.Header.Type != typ {
				continue
			}
			one := record{ttl: time.Duration(min(ttl, r.Header.TTL)) * time.Second}
			switch body := r.Body.(type) {
			case *dnsmessage.AResource:
				one.addr = netip.AddrFrom4(body.A)
			case *dnsmessage.AAAAResource:
				one.addr = netip.AddrFrom16(body.AAAA).Unmap()
			case *dnsmessage.SRVResource:
				one.srv = *body
			}
			list = append(list, one)
		}
		if next == "" || len(list) > 0 {
			return list, nil
		}
		name = next
	}
	return nil, fmt.Errorf("%w: more than %d aliases", ErrMessage, maxChain)
}
