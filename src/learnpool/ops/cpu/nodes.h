// From the responses of a band to the tree's values, and back. Nodes are interpreted: node outside, vectors inside.
#pragma once

#include "band.h"
#include "exponential.h"

namespace learnpool::LEARNPOOL_ISA {

// p left + (1 - p) right; a proportion of exactly 1 or 0 does not read the other side. EXACT: else it may, as that only matters
// where the result is infinite or NaN, and then everything is computed again, or -0.
template <bool EXACT, class A>
INLINE Vec<A> blend(Vec<A> p, Vec<A> left, Vec<A> right) {
  const Vec<A> both = p * left + (A(1) - p) * right;
  return EXACT ? (p == A(1) ? left : (p == A(0) ? right : both)) : both;
}

// A side that has no part in the result, or in a node that has none: it may be infinite or NaN.
template <class A>
INLINE Mask<A> unread(Vec<A> grad, Vec<A> share) {
  return (grad == A(0)) | (share == A(0));
}

template <class A>
class Nodes {
  using V = Vec<A>;

 public:
  Nodes(const Call& call, Responses<A>& responses, Scratch& scratch, int64_t most)
      : program_(call.pool.program), responses_(responses), backward_(call.pool.backward) {
    received_.resize(program_.responses.size());
    for (const Response& response : program_.responses) {
      sums_.push_back(backward_ && response.uses > 1 ? scratch.take<A>(most * LANES<A>) : nullptr);
    }
    for (const Node& node : program_.nodes) {
      const bool inner = node.op != Op::Leaf;
      State state{};
      if (inner) state.buffer = scratch.take<A>(most * LANES<A>);
      if (inner && backward_) state.proportion = scratch.take<A>(most * LANES<A>);
      if (backward_ && (inner || !owns_slot(node))) state.reach_buffer = scratch.take<A>(most * LANES<A>);
      states_.push_back(state);
    }
  }

  // The values of the band's trees into `out`; in backward null, and only what is needed there. `finite` becomes NaN if a result is
  // not finite.
  template <bool CAREFUL>
  void evaluate(const Band& band, A* out, V& finite) {
    for (int64_t i = int64_t(program_.nodes.size()) - 1; i >= 0; --i) {
      const Node& node = program_.nodes[i];
      A* to = i == 0 ? out : states_[i].buffer;
      switch (node.op) {
        case Op::Leaf: states_[i].values = responses_.slot(node.response) + band.at; break;
        case Op::Mix: evaluate_mix(node, i, band, to, finite); break;
        case Op::Gate: {
          const A* z = responses_.slot(node.response) + band.at;
          evaluate_gate<CAREFUL>(node, i, band, to, finite, [=](int64_t at) ALWAYS_INLINE -> V { return load<V>(z + at); });
          break;
        }
        case Op::GateBy: {
          const Row<A> g = responses_.theta(node.row, band), b = node.bias < 0 ? Row<A>{} : responses_.theta(node.bias, band);
          const A* by = states_[node.by].values;
          evaluate_gate<CAREFUL>(node, i, band, to, finite, [=](int64_t at) ALWAYS_INLINE -> V {
            const V z = g.at(at) * load<V>(by + at);
            return b.data == nullptr ? z : z + b.at(at);
          });
        }
      }
    }
    if (out == nullptr || states_[0].values == out) return;
    for (int64_t at = 0; at < band.size; at += LANES<A>) {
      const V v = load<V>(states_[0].values + at);
      store(out + at, v);
      finite += v * A(0);
    }
  }

  // From the gradients of the band's outputs to those of each response, in its slots, and to those of mix, in `pending`.
  template <bool CAREFUL>
  void backpropagate(const Band& band, const A* grad, V& finite) {
    std::fill(received_.begin(), received_.end(), nullptr);
    responses_.clear_pending(band);
    states_[0].reach = grad;
    for (size_t i = 0; i < program_.nodes.size(); ++i) {
      const Node& node = program_.nodes[i];
      if (node.op == Op::Leaf) deliver(node.response, states_[i].reach, band);
      else if (states_[i].reach == nullptr) skip(node);
      else if (node.op == Op::Mix) backpropagate_mix<CAREFUL>(node, i, band, finite);
      else backpropagate_gate<CAREFUL>(node, i, band, finite);
    }
    for (size_t r = 0; r < received_.size(); ++r) {
      with_unit<A, CAREFUL>(program_.responses[r].kind,
                            [&](auto unit) { send<CAREFUL, typename decltype(unit)::Unit>(int64_t(r), band, finite); });
    }
  }

 private:
  const Program& program_;
  Responses<A>& responses_;
  const bool backward_;
  // Of a node: its values and what reaches it (null: nothing), and where these and its proportion are written.
  struct State {
    const A *values, *reach;
    A *buffer, *proportion, *reach_buffer;
  };
  std::vector<State> states_;
  std::vector<const A*> received_;  // what reaches each response
  std::vector<A*> sums_;            // of several nodes

  // Whether what reaches a leaf may be written over its response.
  bool owns_slot(const Node& node) const { return program_.responses[node.response].uses == 1; }

  A* destination(int64_t i, const Band& band) {
    const Node& node = program_.nodes[i];
    A* to = node.op == Op::Leaf && owns_slot(node) ? responses_.slot(node.response) + band.at : states_[i].reach_buffer;
    states_[i].reach = to;
    return to;
  }

  void evaluate_mix(const Node& node, int64_t i, const Band& band, A* to, V& finite) {
    const Row<A> p = responses_.theta(node.row, band);
    const A *left = states_[node.left].values, *right = states_[node.right].values;
    states_[i].values = to;
    if (p.step == 0 && (*p.data == A(1) || *p.data == A(0))) states_[i].values = *p.data == A(1) ? left : right;
    else if (to == nullptr) return;
    else if (p.step == 0) blend_all<false>(band, to, left, right, finite, [=](int64_t) ALWAYS_INLINE -> V { return p.at(0); });
    else blend_all<true>(band, to, left, right, finite, [=](int64_t at) ALWAYS_INLINE -> V { return p.at(at); });
  }

  template <bool CAREFUL, class F>
  INLINE void evaluate_gate(const Node& node, int64_t i, const Band& band, A* to, V& finite, F z) {
    const A *left = states_[node.left].values, *right = states_[node.right].values;
    A* p = states_[i].proportion;
    states_[i].values = to;
    auto open = [=](int64_t at) ALWAYS_INLINE -> V {
      const V s = sigmoid<A>(z(at));
      if (p != nullptr) store(p + at, s);
      return s;
    };
    if (to != nullptr) blend_all<CAREFUL>(band, to, left, right, finite, open);
    else
      for (int64_t at = 0; at < band.size; at += LANES<A>) open(at);
  }

  template <bool EXACT, class F>
  static INLINE void blend_all(const Band& band, A* to, const A* left, const A* right, V& finite, F p) {
    V all{};
    for (int64_t at = 0; at < band.size; at += LANES<A>) {
      const V v = blend<EXACT, A>(p(at), load<V>(left + at), load<V>(right + at));
      store(to + at, v);
      all += v * A(0);
    }
    finite += all;
  }

  void deliver(int64_t r, const A* c, const Band& band) {
    if (c == nullptr) return;
    const A* before = received_[r];
    if (before == nullptr) {
      received_[r] = c;
      return;
    }
    received_[r] = sums_[r];
    for (int64_t at = 0; at < band.size; at += LANES<A>) store(sums_[r] + at, load<V>(before + at) + load<V>(c + at));
  }

  // Nothing reaches this node, so nothing reaches what is below it.
  void skip(const Node& node) {
    states_[node.left].reach = states_[node.right].reach = nullptr;
    if (node.by >= 0) states_[node.by].reach = nullptr;
    if (node.op == Op::Gate) received_[node.response] = nullptr;
  }

  template <bool CAREFUL>
  void backpropagate_mix(const Node& node, int64_t i, const Band& band, V& finite) {
    const Row<A> p = responses_.theta(node.row, band);
    const A *c = states_[i].reach, *left = states_[node.left].values, *right = states_[node.right].values;
    responses_.add_pending(node.row, band, finite, [=](int64_t at) ALWAYS_INLINE -> V {
      return load<V>(c + at) * (load<V>(left + at) - load<V>(right + at));
    });
    if (p.step == 0 && (*p.data == A(1) || *p.data == A(0))) {
      states_[node.left].reach = *p.data == A(1) ? c : nullptr;
      states_[node.right].reach = *p.data == A(1) ? nullptr : c;
      return;
    }
    A *to_left = destination(node.left, band), *to_right = destination(node.right, band);
    V all{};
    for (int64_t at = 0; at < band.size; at += LANES<A>) {
      const V grad = load<V>(c + at), share = p.at(at);
      V a = grad * share, b = grad * (A(1) - share);
      if constexpr (CAREFUL) {
        a = unread<A>(grad, share) ? V{} : a;
        b = unread<A>(grad, A(1) - share) ? V{} : b;
      }
      store(to_left + at, a);
      store(to_right + at, b);
      all += (a + b) * A(0);
    }
    finite += all;
  }

  template <bool CAREFUL>
  void backpropagate_gate(const Node& node, int64_t i, const Band& band, V& finite) {
    const A *c = states_[i].reach, *left = states_[node.left].values, *right = states_[node.right].values,
            *p = states_[i].proportion;
    A *to_left = destination(node.left, band), *to_right = destination(node.right, band);
    A* to_z;
    if (node.op == Op::Gate) received_[node.response] = to_z = responses_.slot(node.response) + band.at;
    else to_z = states_[i].proportion;
    V all{};
    for (int64_t at = 0; at < band.size; at += LANES<A>) {
      const V grad = load<V>(c + at), s = load<V>(p + at);
      V a = grad * s, b = grad * (A(1) - s), slope = grad * (load<V>(left + at) - load<V>(right + at)) * (s * (A(1) - s));
      if constexpr (CAREFUL) {
        a = unread<A>(grad, s) ? V{} : a;
        b = unread<A>(grad, A(1) - s) ? V{} : b;
        slope = unread<A>(grad, s * (A(1) - s)) ? V{} : slope;
      }
      store(to_left + at, a);
      store(to_right + at, b);
      store(to_z + at, slope);
      all += (a + b + slope) * A(0);
    }
    finite += all;
    if (node.op == Op::GateBy) backpropagate_by(node, band, to_z, finite);
  }

  // What reaches z = g by + b goes on to all three.
  void backpropagate_by(const Node& node, const Band& band, const A* slope, V& finite) {
    const Row<A> g = responses_.theta(node.row, band);
    const A* by = states_[node.by].values;
    responses_.add_pending(node.row, band, finite,
                           [=](int64_t at) ALWAYS_INLINE -> V { return load<V>(slope + at) * load<V>(by + at); });
    if (node.bias >= 0) {
      responses_.add_pending(node.bias, band, finite, [=](int64_t at) ALWAYS_INLINE -> V { return load<V>(slope + at); });
    }
    A* to = destination(node.by, band);
    V all{};
    for (int64_t at = 0; at < band.size; at += LANES<A>) {
      const V reached = load<V>(slope + at) * g.at(at);
      store(to + at, reached);
      all += reached * A(0);
    }
    finite += all;
  }

  template <bool CAREFUL, class U>
  void send(int64_t r, const Band& band, V& finite) {
    const Response& response = program_.responses[r];
    A* first = responses_.slot(r) + band.at;
    const A* c = received_[r];
    if (!CAREFUL && U::PLAIN && c == first) return;
    const bool learns = response.scalar >= 0 && response.scalar < program_.mixes();
    V all{};
    for (int64_t at = 0; at < band.size; at += LANES<A>) {
      V grad = c == nullptr ? V{} : load<V>(c + at);
      const Mask<A> live = load<Mask<A>>(responses_.live + band.at + at);
      if constexpr (CAREFUL) grad = (V)((Mask<A>)grad & live);
      all += grad * A(0);
      Region<A> region{};
      region.n = load<V>(responses_.n + band.at + at);
      region.divisor = load<V>(responses_.divisor + band.at + at);
      if (response.scalar >= 0) region.theta = responses_.theta(response.scalar, band).at(at);
      const SlotsAt<A> slots{first + at, responses_.size, live};
      const V slope = U::send(grad, region, slots);
      if (learns) all += responses_.add_pending_vector(response.scalar, at, (V)((Mask<A>)slope & live)) * A(0);
    }
    finite += all;
  }
};

}  // namespace learnpool::LEARNPOOL_ISA
