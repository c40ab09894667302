package semantics

import "strings"

// Codings returns those of the content codings on offer that a client accepts by its Accept-Encoding (RFC 9110 12.5.3), in the order in
// which it prefers them, and those that it likes equally in that of the offer. What it likes less than the content as it is, is left
// out. The value is that of all lines, joined. Without the field no coding is returned, although any would be accepted: clients that do
// not know of codings send none.
func Codings(accept string, offer []string) (list []string) {
	if accept == "" {
		return nil
	}
	plain := quality(accept, "identity")
	var weights []int
	for _, coding := range offer {
		q := quality(accept, coding)
		if q <= 0 || q < plain {
			continue
		}
		i := len(list)
		for i > 0 && weights[i-1] < q {
			i--
		}
		list, weights = append(list, ""), append(weights, 0)
		copy(list[i+1:], list[i:])
		copy(weights[i+1:], weights[i:])
		list[i], weights[i] = coding, q
	}
	return list
}

// quality returns the weight of a coding in thousandths, 0 where it is not acceptable. The content as it is has none unless the client
// says so: a coding that it names is then better.
func quality(accept, coding string) int {
	wildcard := 0
	for part := range strings.SplitSeq(accept, ",") {
		name, params, _ := strings.Cut(part, ";")
		name = strings.ToLower(strings.Trim(name, " \t"))
		switch {
		case name == coding, coding == "gzip" && name == "x-gzip": // RFC 9110 8.4.1.3
			return weightOf(params)
		case name == "*" && coding != "identity":
			wildcard = weightOf(params)
		}
	}
	return wildcard
}

// weightOf reads the weight of parameters (RFC 9110 12.4.2) in thousandths. One that is malformed is 0: a client that may mean "none"
// gets none.
func weightOf(params string) int {
	params = strings.Trim(params, " \t")
	if params == "" {
		return 1000
	}
	name, value, ok := strings.Cut(params, "=")
	if value = strings.TrimRight(value, " \t"); !ok || !strings.EqualFold(strings.TrimRight(name, " \t"), "q") {
		return 0
	}
	whole, digits, _ := strings.Cut(value, ".")
	if len(digits) > 3 || whole != "0" && whole != "1" || strings.Trim(digits, "0123456789") != "" {
		return 0
	}
	n := 0
	for i := range 3 {
		if n *= 10; i < len(digits) {
			n += int(digits[i] - '0')
		}
	}
	if whole == "1" {
		if n > 0 {
			return 0
		}
		return 1000
	}
	return n
}
