#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ringtrain/allreduce/mpi/session.hpp"
#include "train/engine/engine.hpp"
#include "train/plan/run_plan.hpp"

namespace ringtrain::train {

/// Other shares are worth their trouble where a step then takes so much of its time, or less.
inline constexpr double worth_other_shares = 0.9;

/// How long one rank computes in a step, without waiting for others.
struct RankSpeed {
  double sample_s = 0;  ///< for each sample of its share of a micro-step, in all micro-steps
  double fixed_s = 0;   ///< whatever its share
  double seconds(int share) const { return share * sample_s + fixed_s; }
};

/// `samples` in whole numbers, in proportion to `weights`, which are above 0; at least one each.
/// What is left over goes to the largest remainders, of equal ones to the first.
std::vector<int> divide(int samples, std::span<const double> weights);

/// The division of `samples` among the ranks whose slowest rank has computed soonest; at least one
/// sample each.
std::vector<int> fastest_division(int samples, std::span<const RankSpeed> speeds);
/// When the slowest rank has computed.
double slowest_s(std::span<const int> shares, std::span<const RankSpeed> speeds);
/// Every rank's, on all ranks. Collective.
std::vector<RankSpeed> gather_speeds(const RankSpeed& own, const allreduce::MpiSession& session);
/// "10:6", as --shares takes it.
std::string shares_text(std::span<const int> shares);

/// `plans`, a JSON object, with the plan's shares where these are not equal: for checkpoints.
std::string with_shares(const std::string& plans, const RunPlan& plan);
/// Whether such plans make the same bits as the plan's: shares that are equal need no name.
bool same_plans(const std::string& saved, const std::string& now, const RunPlan& plan);
/// The shares that such plans name; none where they are equal, or the text is not ours.
std::vector<int> shares_in(std::string_view plans);

/// Divides the plan's samples as a list of --shares says: one number a rank, or one a host, of
/// which its ranks get equal parts. Throws Error(Exit::usage) where the list is neither; with
/// --as-ranks, when some ranks may have been lost, it is left aside. Tells the user.
void take_given_shares(RunPlan& plan, const allreduce::MpiSession& session, const Tell& tell);

/// Whether settle_shares() would come to other shares than the plan's from a checkpoint of these
/// plans.
bool settles_otherwise(std::string_view plans, const RunPlan& plan);

/// Decides how the ranks divide the samples of a step where the user left that open: as in the
/// checkpoint that training goes on from; else, with --shares auto, as a trial on all ranks at once
/// shows to be fastest, which trains a throw-away engine of `make_engine`; no trial without that.
/// `progress` hears which file is read. Collective.
void settle_shares(RunPlan& plan,
                   const std::function<std::unique_ptr<TrainingEngine>()>& make_engine,
                   const allreduce::MpiSession& session, const Tell& tell,
                   monitor::Progress& progress);

}  // namespace ringtrain::train
