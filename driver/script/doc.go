// Package script is a driver that plays a YAML script of events with delays and
// failures (D5): for demonstrations, for tests of whatever stands around a
// driver, and for measurements.
//
// A script has named replies. The first whose match fits the input is played,
// step by step:
//
//	replies:
//	  - name: fetch
//	    match: {contains: [ball, stick]}   # any of them, in any case
//	    steps:
//	      - progress: {stage: running, current: 1, total: 2, unit: legs}
//	      - wait: 300ms
//	      - say: {text: "Here is your {text}. What next?", chunk: 12, every: 50ms, purpose: question}
//	      - ask: next
//	  - name: again
//	    match: {continues: [next]}
//	    steps:
//	      - fail: the dog has gone to sleep
//	  - name: rest                         # no match: fits everything
//	    steps:
//	      - say: Woof.
//
// The steps are progress, say, checkpoint, ask, complete, fail, panic, wait,
// hang and repeat; [Parse] describes them. A script may break the contract of
// drivers on purpose, for instance by leaving an output open: Parse refuses
// only what is not a script.
//
// It knows no language model and no network, draws no randomness, and keeps no
// state between attempts: the same input gives the same events under the same
// logical ids, so that a resumed attempt repeats nothing that was closed (R2).
package script
