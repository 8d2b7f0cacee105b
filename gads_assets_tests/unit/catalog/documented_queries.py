"""Queries of the kind that Google's documentation shows, over many resources; every installed API version has them."""

from typing import Final

_TEXT: Final = r"""
SELECT campaign.id, campaign.name
FROM campaign
ORDER BY campaign.id

SELECT campaign.id, campaign.name, metrics.impressions
FROM campaign
WHERE campaign.status = 'PAUSED' AND metrics.impressions > 1000
ORDER BY campaign.id
LIMIT 5

SELECT campaign.name, campaign.status, segments.device, metrics.impressions, metrics.clicks, metrics.ctr,
  metrics.average_cpc, metrics.cost_micros
FROM campaign
WHERE segments.date DURING LAST_30_DAYS

SELECT campaign.name, campaign_budget.amount_micros, campaign_budget.period
FROM campaign_budget

SELECT ad_group_criterion.keyword.text, ad_group.name, campaign.name, metrics.impressions
FROM keyword_view
WHERE segments.date DURING LAST_30_DAYS

SELECT ad_group_ad.ad.id, ad_group_ad.ad.responsive_search_ad.headlines,
  ad_group_ad.ad.responsive_search_ad.descriptions, ad_group_ad.status
FROM ad_group_ad
WHERE ad_group_ad.ad.type = RESPONSIVE_SEARCH_AD AND ad_group_ad.status != "REMOVED"

SELECT ad_group_ad.ad.id, ad_group_ad.ad.type, ad_group_ad.policy_summary.approval_status,
  ad_group_ad.policy_summary.policy_topic_entries
FROM ad_group_ad
WHERE ad_group_ad.policy_summary.approval_status = DISAPPROVED

SELECT campaign.id, campaign.labels
FROM campaign
WHERE campaign.labels CONTAINS ANY ('customers/1/labels/2', 'customers/1/labels/3')

SELECT campaign.id
FROM campaign
WHERE campaign.labels CONTAINS ALL ('customers/1/labels/2') AND campaign.labels CONTAINS NONE
  ("customers/1/labels/9")

SELECT label.id, label.name, label.text_label.background_color
FROM label
WHERE label.name LIKE "%sale%"

SELECT click_view.gclid, click_view.area_of_interest.city, click_view.keyword_info.text, segments.date
FROM click_view
WHERE segments.date = '2024-06-01'

SELECT change_event.resource_name, change_event.change_date_time, change_event.change_resource_name,
  change_event.user_email, change_event.client_type, change_event.change_resource_type,
  change_event.old_resource, change_event.new_resource, change_event.resource_change_operation,
  change_event.changed_fields
FROM change_event
WHERE change_event.change_date_time <= '2024-01-14' AND change_event.change_date_time >= '2024-01-01'
ORDER BY change_event.change_date_time DESC
LIMIT 5

SELECT change_status.resource_name, change_status.last_change_date_time, change_status.resource_type,
  change_status.campaign, change_status.resource_status
FROM change_status
WHERE change_status.last_change_date_time DURING LAST_14_DAYS
ORDER BY change_status.last_change_date_time
LIMIT 10000

SELECT customer_client.client_customer, customer_client.level, customer_client.manager,
  customer_client.descriptive_name, customer_client.currency_code, customer_client.time_zone,
  customer_client.id, customer_client.applied_labels
FROM customer_client
WHERE customer_client.level <= 1

SELECT geo_target_constant.resource_name, geo_target_constant.country_code, geo_target_constant.id,
  geo_target_constant.name, geo_target_constant.canonical_name, geo_target_constant.target_type
FROM geo_target_constant
WHERE geo_target_constant.country_code = 'US' AND geo_target_constant.target_type = 'City' AND
  geo_target_constant.name = 'Mountain View' AND geo_target_constant.status = 'ENABLED'

SELECT keyword_plan_campaign.id, keyword_plan_campaign.geo_targets, keyword_plan_campaign.keyword_plan_network
FROM keyword_plan_campaign

SELECT segments.keyword.info.text, segments.keyword.info.match_type, segments.keyword.ad_group_criterion,
  search_term_view.search_term, metrics.clicks
FROM search_term_view
WHERE segments.date DURING LAST_7_DAYS

SELECT campaign.id, campaign.advertising_channel_type, campaign.advertising_channel_sub_type
FROM campaign
WHERE campaign.advertising_channel_type IN ('SEARCH','DISPLAY')
PARAMETERS include_drafts=true

SELECT campaign.id
FROM campaign
PARAMETERS omit_unselected_resource_names = true, include_drafts = TRUE

SELECT asset_group_listing_group_filter.id, asset_group_listing_group_filter.type,
  asset_group_listing_group_filter.case_value.product_brand.value,
  asset_group_listing_group_filter.parent_listing_group_filter, asset_group_listing_group_filter.path
FROM asset_group_listing_group_filter

SELECT asset_group.id, asset_group.name, asset_group.ad_strength,
  asset_group.asset_coverage.ad_strength_action_items, asset_group.final_urls, metrics.clicks
FROM asset_group
WHERE segments.date BETWEEN '2024-01-01' AND '2024-01-31'

SELECT shopping_product.item_id, shopping_product.title, shopping_product.status, shopping_product.issues,
  shopping_product.price_micros, shopping_product.custom_attribute0
FROM shopping_product

SELECT segments.product_item_id, segments.product_custom_attribute0, segments.product_type_l1,
  metrics.cost_micros
FROM shopping_performance_view
WHERE segments.date DURING LAST_MONTH

SELECT local_services_lead.id, local_services_lead.category_id, local_services_lead.lead_type,
  local_services_lead.contact_details, local_services_lead.note, local_services_lead.lead_charged,
  local_services_lead.creation_date_time
FROM local_services_lead

SELECT local_services_lead_conversation.message_details.text,
  local_services_lead_conversation.phone_call_details.call_duration_millis
FROM local_services_lead_conversation

SELECT recommendation.type, recommendation.campaign, recommendation.campaigns, recommendation.dismissed,
  recommendation.impact, recommendation.text_ad_recommendation
FROM recommendation
WHERE recommendation.type = TEXT_AD

SELECT offline_conversion_upload_client_summary.client, offline_conversion_upload_client_summary.status,
  offline_conversion_upload_client_summary.daily_summaries, offline_conversion_upload_client_summary.alerts
FROM offline_conversion_upload_client_summary

SELECT offline_conversion_upload_conversion_action_summary.conversion_action_name,
  offline_conversion_upload_conversion_action_summary.job_summaries
FROM offline_conversion_upload_conversion_action_summary

SELECT customizer_attribute.id, customizer_attribute.type, customizer_attribute.status,
  campaign_customizer.value.type, campaign_customizer.value.string_value
FROM campaign_customizer

SELECT conversion_action.id, conversion_action.name, conversion_action.type, conversion_action.category,
  conversion_action.tag_snippets, conversion_action.value_settings.default_value,
  conversion_action.attribution_model_settings.attribution_model
FROM conversion_action

SELECT bidding_strategy.id, bidding_strategy.name, bidding_strategy.type,
  bidding_strategy.target_cpa.target_cpa_micros
FROM bidding_strategy

SELECT billing_setup.id, billing_setup.payments_account_info.payments_account_id
FROM billing_setup

SELECT account_budget.approved_spending_limit_micros, account_budget.proposed_spending_limit_type
FROM account_budget

SELECT user_list.id, user_list.name, user_list.type,
  user_list.rule_based_user_list.flexible_rule_user_list.inclusive_rule_operator
FROM user_list
WHERE user_list.membership_status = OPEN

SELECT geographic_view.country_criterion_id, geographic_view.location_type, segments.geo_target_city,
  segments.geo_target_region
FROM geographic_view
WHERE segments.date >= '2024-01-01' AND segments.date < '2024-02-01'

SELECT user_location_view.country_criterion_id, user_location_view.targeting_location, metrics.clicks
FROM user_location_view

SELECT campaign_search_term_insight.category_label, campaign_search_term_insight.id, metrics.clicks
FROM campaign_search_term_insight
WHERE campaign_search_term_insight.campaign_id = 1234567890 AND segments.date DURING LAST_30_DAYS

SELECT campaign_search_term_view.search_term, campaign.id, segments.date, metrics.clicks
FROM campaign_search_term_view

SELECT segments.conversion_action, segments.conversion_action_name, segments.conversion_action_category,
  metrics.all_conversions
FROM campaign
WHERE segments.date BETWEEN "2024-01-01" AND "2024-01-02"

SELECT customer.id, segments.date, segments.hour, metrics.clicks
FROM customer
WHERE segments.date = '2024-01-01'

SELECT ad_group_bid_modifier.device.type, ad_group_bid_modifier.bid_modifier
FROM ad_group_bid_modifier

SELECT campaign_criterion.type, campaign_criterion.location.geo_target_constant,
  campaign_criterion.ad_schedule.day_of_week, campaign_criterion.bid_modifier, campaign_criterion.negative
FROM campaign_criterion
WHERE campaign_criterion.type IN (LOCATION, AD_SCHEDULE)

SELECT asset.id, asset.type, asset.text_asset.text, asset.image_asset.full_size.url,
  asset.youtube_video_asset.youtube_video_id, asset.policy_summary.review_status
FROM asset
WHERE asset.type = 'IMAGE'

SELECT ad_group_ad_asset_view.field_type, ad_group_ad_asset_view.performance_label, asset.name
FROM ad_group_ad_asset_view

SELECT product_group_view.resource_name, ad_group_criterion.listing_group.type,
  ad_group_criterion.listing_group.case_value.product_type.level
FROM product_group_view

SELECT ad_group_criterion.effective_cpc_bid_micros, ad_group_criterion.position_estimates.top_of_page_cpc_micros
FROM ad_group_criterion
WHERE ad_group_criterion.effective_cpc_bid_micros IS NOT NULL

SELECT campaign.target_cpa.target_cpa_micros, campaign.maximize_conversion_value.target_roas,
  campaign.manual_cpc.enhanced_cpc_enabled, campaign.url_custom_parameters, campaign.frequency_caps
FROM campaign

SELECT campaign.start_date_time, campaign.end_date_time
FROM campaign

SELECT batch_job.id, batch_job.metadata.completion_date_time
FROM batch_job

SELECT language_constant.code, language_constant.id
FROM language_constant
WHERE language_constant.targetable = TRUE

SELECT carrier_constant.id, carrier_constant.country_code
FROM carrier_constant

SELECT accessible_bidding_strategy.id, accessible_bidding_strategy.type
FROM accessible_bidding_strategy

SELECT customer_manager_link.manager_customer, customer_manager_link.status
FROM customer_manager_link

SELECT customer_user_access.email_address, customer_user_access.access_role
FROM customer_user_access

SELECT hotel_performance_view.resource_name, segments.hotel_center_id, segments.hotel_check_in_date
FROM hotel_performance_view

SELECT per_store_view.place_id, per_store_view.address1
FROM per_store_view

SELECT travel_activity_performance_view.resource_name
FROM travel_activity_performance_view

SELECT lead_form_submission_data.id, lead_form_submission_data.lead_form_submission_fields,
  lead_form_submission_data.submission_date_time
FROM lead_form_submission_data

SELECT call_view.caller_country_code, call_view.start_call_date_time, call_view.type
FROM call_view

SELECT campaign.id
FROM campaign
WHERE campaign.name REGEXP_MATCH "(?i).*black\s*friday.*"

SELECT campaign.id
FROM campaign
WHERE campaign.name NOT REGEXP_MATCH ".*test.*" AND campaign.name NOT LIKE "%x%"

SELECT campaign.id
FROM campaign
WHERE campaign.name LIKE '[[]Earth[_]to[_]Mars[]]%'

select campaign.id
from campaign
where campaign.status = 'ENABLED'
order by campaign.id desc
limit 10

SELECT campaign.id
FROM campaign
WHERE campaign.id IN (1,2,3) AND campaign.status = ENABLED

SELECT campaign.id
FROM campaign
WHERE campaign.id BETWEEN 1 AND 10

SELECT campaign.id, campaign.advertising_channel_type
FROM campaign
WHERE campaign.status NOT IN ('REMOVED', 'UNKNOWN')

SELECT campaign.id
FROM campaign
WHERE campaign.name = "It's 5 o'clock"

SELECT campaign.id
FROM campaign
WHERE campaign.name = 'It\'s'

SELECT campaign.id
FROM campaign
WHERE campaign.bidding_strategy IS NULL AND campaign.campaign_budget IS NOT NULL

SELECT campaign.id
FROM campaign
WHERE campaign.resource_name = 'customers/1/campaigns/2'

SELECT campaign.campaign_group, campaign_group.name
FROM campaign

SELECT ad_group_ad.ad.final_urls, ad_group_ad.ad.expanded_text_ad.headline_part1
FROM ad_group_ad
WHERE ad_group_ad.ad.final_urls CONTAINS ANY ("https://x.example/")

SELECT campaign.id
FROM campaign
WHERE campaign.name = ""

SELECT campaign.id
FROM campaign
WHERE campaign.optimization_score >= -1.5

SELECT ad_group.id, ad_group.type, ad_group.url_custom_parameters,
  ad_group.targeting_setting.target_restrictions, ad_group.excluded_parent_asset_field_types
FROM ad_group

SELECT performance_max_placement_view.placement, performance_max_placement_view.placement_type
FROM performance_max_placement_view

SELECT ai_max_search_term_ad_combination_view.search_term
FROM ai_max_search_term_ad_combination_view

SELECT audience.dimensions, audience.exclusion_dimension
FROM audience

SELECT customer.conversion_tracking_setting.conversion_tracking_id,
  customer.call_reporting_setting.call_reporting_enabled, customer.remarketing_setting.google_global_site_tag
FROM customer
LIMIT 1

SELECT metrics.historical_quality_score, metrics.search_impression_share, metrics.video_quartile_p25_rate,
  metrics.phone_calls, metrics.hotel_price_difference_percentage
FROM campaign

SELECT ad_group_criterion.type, ad_group_criterion.user_list.user_list, ad_group_criterion.webpage.conditions
FROM ad_group_criterion

SELECT shared_set.id, shared_set.type, shared_criterion.type, shared_criterion.keyword.text
FROM shared_criterion

SELECT conversion_value_rule.action.operation, conversion_value_rule_set.dimensions
FROM conversion_value_rule_set

SELECT asset_set.type, asset_set_asset.status, asset_set.location_set.location_ownership_type
FROM asset_set_asset

SELECT campaign.id
FROM campaign
ORDER BY metrics.clicks DESC, campaign.name
LIMIT 1000000
"""

DOCUMENTED_QUERIES: Final = tuple(query.strip() for query in _TEXT.split("\n\n"))
