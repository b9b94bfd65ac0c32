package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxDepth is how deep plain JSON may nest.
const MaxDepth = 64

// CheckPlain holds E6 for a value that a driver or a product sends: one JSON
// value, valid UTF-8 without lone surrogates, every integer within ±2^53, every
// member named once. The error carries the path of what is wrong and never the value.
func CheckPlain(raw []byte) error {
	if !utf8.Valid(raw) {
		return fmt.Errorf("$: is not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := checkValue(dec, "$", 0); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("$: something follows the JSON value")
	}
	return loneSurrogate(raw)
}

func checkValue(dec *json.Decoder, path string, depth int) error {
	if depth > MaxDepth {
		return fmt.Errorf("%s: nests deeper than %d", path, MaxDepth)
	}
	tok, err := dec.Token()
	if err != nil {
		return fmt.Errorf("%s: is not JSON", path)
	}
	switch t := tok.(type) {
	case json.Number:
		return checkNumber(string(t), path)
	case json.Delim:
		if t == '[' {
			for i := 0; dec.More(); i++ {
				if err := checkValue(dec, path+"["+strconv.Itoa(i)+"]", depth+1); err != nil {
					return err
				}
			}
		} else {
			seen := map[string]bool{}
			for dec.More() {
				name, err := dec.Token()
				if err != nil {
					return fmt.Errorf("%s: is not JSON", path)
				}
				key, _ := name.(string)
				if seen[key] {
					return fmt.Errorf("%s: names a member twice", path)
				}
				seen[key] = true
				if err := checkValue(dec, path+"."+key, depth+1); err != nil {
					return err
				}
			}
		}
		if _, err := dec.Token(); err != nil {
			return fmt.Errorf("%s: is not JSON", path)
		}
	}
	return nil
}

func checkNumber(s, path string) error {
	if !strings.ContainsAny(s, ".eE") {
		i, ok := new(big.Int).SetString(s, 10)
		if !ok || i.CmpAbs(big.NewInt(1<<53)) > 0 {
			return fmt.Errorf("%s: an integer beyond ±2^53 does not survive JSON; send it as a string", path)
		}
		return nil
	}
	if len(s) > 64 {
		return fmt.Errorf("%s: a number of more than 64 characters", path)
	}
	if _, err := strconv.ParseFloat(s, 64); err != nil {
		return fmt.Errorf("%s: a number outside the range of a double", path)
	}
	return nil
}

// loneSurrogate finds an escaped surrogate without its partner; encoding/json
// would replace it silently.
func loneSurrogate(raw []byte) error {
	for i := 0; i+1 < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		if raw[i+1] != 'u' {
			i++
			continue
		}
		u, ok := hex4(raw, i+2)
		if !ok {
			return fmt.Errorf("$: is not JSON")
		}
		switch {
		case u >= 0xdc00 && u < 0xe000:
			return fmt.Errorf("$: holds an escaped lone surrogate")
		case u >= 0xd800 && u < 0xdc00:
			lo, ok := uint64(0), false
			if i+7 < len(raw) && raw[i+6] == '\\' && raw[i+7] == 'u' {
				lo, ok = hex4(raw, i+8)
			}
			if !ok || lo < 0xdc00 || lo >= 0xe000 {
				return fmt.Errorf("$: holds an escaped lone surrogate")
			}
			i += 11
		default:
			i += 5
		}
	}
	return nil
}

func hex4(raw []byte, at int) (uint64, bool) {
	if at+4 > len(raw) {
		return 0, false
	}
	u, err := strconv.ParseUint(string(raw[at:at+4]), 16, 16)
	return u, err == nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
