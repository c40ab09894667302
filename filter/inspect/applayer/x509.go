package applayer

import (
	"strconv"
	"strings"
)

// certificate holds the fields that rules compare. Certificates of malware break the rules of X.509, which crypto/x509 enforces;
// only the places of the fields are read here (RFC 5280 4.1).
type certificate struct {
	serial          []byte
	subject, issuer string
}

// Tags of DER (X.690 8.1.2).
const (
	derInteger  = 0x02
	derOID      = 0x06
	derSequence = 0x30
	derSet      = 0x31
	derVersion  = 0xa0
)

// der reads one element and returns its tag, its content and what follows. A length below 128 is one byte; 0x80 + n precedes n bytes
// of a longer one (X.690 8.1.3). Tags of more than one byte do not come before the fields that are read.
func der(b []byte) (tag byte, body, rest []byte, ok bool) {
	if len(b) < 2 {
		return 0, nil, nil, false
	}
	n, at := int(b[1]), 2
	if n >= 0x80 {
		k := n & 0x7f
		if k == 0 || k > 3 || len(b) < 2+k {
			return 0, nil, nil, false
		}
		n = 0
		for _, c := range b[2 : 2+k] {
			n = n<<8 | int(c)
		}
		at += k
	}
	if len(b) < at+n {
		return 0, nil, nil, false
	}
	return b[0], b[at : at+n], b[at+n:], true
}

// parseCertificate reads serial number, issuer and subject (RFC 5280 4.1):
//
//	SEQUENCE { SEQUENCE { [0] version OPTIONAL, serialNumber INTEGER, signature, issuer, validity, subject, ... }, ... }
//
// The serial number of a version 1 certificate comes first. A zero before a high bit keeps an INTEGER positive and is no part of the
// number as tools print it.
func parseCertificate(b []byte) (c certificate, ok bool) {
	_, b, _, ok = der(b) // Certificate
	if !ok {
		return c, false
	}
	if _, b, _, ok = der(b); !ok { // tbsCertificate
		return c, false
	}
	tag, body, rest, ok := der(b)
	if ok && tag == derVersion {
		tag, body, rest, ok = der(rest)
	}
	if !ok || tag != derInteger {
		return c, false
	}
	c.serial = body
	if len(body) > 1 && body[0] == 0 {
		c.serial = body[1:]
	}
	fields := [4][]byte{} // signature, issuer, validity, subject
	for i := range fields {
		if _, fields[i], rest, ok = der(rest); !ok {
			return c, false
		}
	}
	c.issuer, c.subject = distinguishedName(fields[1]), distinguishedName(fields[3])
	return c, true
}

// attributes are the short names of attribute types.
var attributes = map[string]string{
	"2.5.4.3": "CN", "2.5.4.4": "SN", "2.5.4.5": "serialNumber", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST",
	"2.5.4.9": "STREET", "2.5.4.10": "O", "2.5.4.11": "OU", "2.5.4.12": "title", "2.5.4.17": "postalCode", "2.5.4.42": "GN",
	"1.2.840.113549.1.9.1": "emailAddress", "0.9.2342.19200300.100.1.25": "DC", "0.9.2342.19200300.100.1.1": "UID", "2.5.4.15": "businessCategory",
	"1.3.6.1.4.1.311.60.2.1.3": "jurisdictionC", "1.3.6.1.4.1.311.60.2.1.2": "jurisdictionST", "1.3.6.1.4.1.311.60.2.1.1": "jurisdictionL",
}

// distinguishedName writes a name as "C=NL, O=Example, CN=www", the form of OpenSSL that rules compare. A name is a SEQUENCE of SETs
// of { type OID, value } (RFC 5280 4.1.2.4). Values are copied as they are, whatever kind of string they have.
func distinguishedName(b []byte) string {
	var parts []string
	for len(b) > 0 {
		tag, set, rest, ok := der(b)
		if !ok {
			break
		}
		b = rest
		for tag == derSet && len(set) > 0 {
			var one []byte
			if _, one, set, ok = der(set); !ok {
				break
			}
			kind, oid, rest, ok := der(one)
			_, value, _, ok2 := der(rest)
			if !ok || !ok2 || kind != derOID {
				break
			}
			name := dotted(oid)
			if short, ok := attributes[name]; ok {
				name = short
			}
			parts = append(parts, name+"="+string(value))
		}
	}
	return strings.Join(parts, ", ")
}

// dotted writes an object identifier in decimal (X.690 8.19): numbers of seven bits a byte, the highest first, of which the first is
// 40 times the first arc plus the second.
func dotted(b []byte) string {
	var s strings.Builder
	v, first := 0, true
	for _, c := range b {
		v = v<<7 | int(c&0x7f)
		if c&0x80 != 0 {
			continue
		}
		if first {
			k := min(v/40, 2)
			s.WriteString(strconv.Itoa(k) + "." + strconv.Itoa(v-40*k))
		} else {
			s.WriteString("." + strconv.Itoa(v))
		}
		v, first = 0, false
	}
	return s.String()
}
