package signature

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Some keywords compare a number or a word of a message. Each is a part of its own: a buffer that holds the number, big endian,
// and a test of it.

// mqttTypes are the types of control packets (MQTT 5.0 2.1.2).
var mqttTypes = map[string]uint64{
	"connect": 1, "connack": 2, "publish": 3, "puback": 4, "pubrec": 5, "pubrel": 6, "pubcomp": 7, "subscribe": 8,
	"suback": 9, "unsubscribe": 10, "unsuback": 11, "pingreq": 12, "pingresp": 13, "disconnect": 14, "auth": 15, "unassigned": 0,
}

// mqttFlags are bits of the fixed header, mqttConnectFlags of CONNECT (MQTT 5.0 2.1.3, 3.1.2.3).
var (
	mqttFlags        = map[string]uint64{"retain": 1, "dup": 8}
	mqttConnectFlags = map[string]uint64{"clean_session": 2, "will": 4, "will_retain": 32, "password": 64, "username": 128}
)

// numberKeywords are those that compare a number of a message.
func numberKeywords(value addValue) {
	integer := func(name string, b Buffer, most uint64, words map[string]uint64) {
		value(name, func(p *ruleParser, v string) error {
			r, err := integerOf(v, most, words)
			p.addInteger(b, r, math.MaxUint64)
			return err
		})
	}
	flags := func(name string, b Buffer, bits map[string]uint64) {
		value(name, func(p *ruleParser, v string) error {
			mask, want, err := flagsOf(v, bits)
			p.addInteger(b, Range{Low: want, High: want}, mask)
			return err
		})
	}
	integer("mqtt.type", MQTTType, math.MaxUint8, mqttTypes)
	integer("mqtt.qos", MQTTQoS, 2, nil)
	integer("mqtt.protocol_version", MQTTVersion, math.MaxUint8, nil)
	integer("mqtt.reason_code", MQTTReason, math.MaxUint8, nil)
	integer("mqtt.connack.return_code", MQTTReason, math.MaxUint8, nil)
	integer("mqtt.connack.session_present", MQTTSession, 1, map[string]uint64{"no": 0, "false": 0, "yes": 1, "true": 1})
	integer("nfs_procedure", NFSProcedure, math.MaxUint32, nil)
	integer("nfs_version", NFSVersion, math.MaxUint32, nil)
	flags("mqtt.flags", MQTTFlags, mqttFlags)
	flags("mqtt.connect.flags", MQTTConnectFlags, mqttConnectFlags)
	value("ftpdata_command", func(p *ruleParser, v string) error {
		word := strings.ToUpper(v)
		if word != "STOR" && word != "RETR" {
			return fmt.Errorf("ftpdata_command is stor or retr, not %q", v)
		}
		i := p.part(FTPDataCommand, nil)
		c := &Content{Bytes: []byte(word), StartsWith: true, EndsWith: true}
		p.rule.Parts[i].Tests = append(p.rule.Parts[i].Tests, Test{Kind: TestContent, Content: c})
		return nil
	})
}

// addInteger adds a test of a number that is a buffer of its own. The buffer of the contents behind it stays.
func (p *ruleParser) addInteger(b Buffer, r Range, mask uint64) {
	i := p.part(b, nil)
	p.rule.Parts[i].Tests = append(p.rule.Parts[i].Tests, Test{Kind: TestInteger, Size: r, Mask: mask})
}

// integerOf reads a range of numbers up to most, or a word.
func integerOf(v string, most uint64, words map[string]uint64) (Range, error) {
	word, not := strings.CutPrefix(strings.ToLower(strings.TrimSpace(v)), "!")
	if n, ok := words[word]; ok {
		return Range{Low: n, High: n, Not: not}, nil
	}
	r, err := rangeOf(v, most)
	switch {
	case err != nil && len(words) > 0:
		return r, fmt.Errorf("%q is not a number, nor one of %s", v, strings.Join(slices.Sorted(maps.Keys(words)), ", "))
	case err == nil && r.High > most:
		return r, fmt.Errorf("%q is more than %s", v, strconv.FormatUint(most, 10))
	}
	return r, err
}

// flagsOf reads names of bits with commas between them, those behind "!" cleared.
func flagsOf(v string, bits map[string]uint64) (mask, want uint64, err error) {
	for _, w := range arguments(strings.ToLower(v)) {
		name, not := strings.CutPrefix(w, "!")
		bit := bits[name]
		if bit == 0 {
			return 0, 0, fmt.Errorf("%q is not one of %s", name, strings.Join(slices.Sorted(maps.Keys(bits)), ", "))
		}
		if mask |= bit; !not {
			want |= bit
		}
	}
	return mask, want, nil
}
